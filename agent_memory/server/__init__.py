"""The service: a memory over HTTP, for many users at once.

One table says all that it does: `calls`. An entry has a method, a path, the right that it needs and
a function from a checked form to an answer; routes, who may call it, the OpenAPI document and the
tests of authorization follow from it. So a new call is one entry, in the module of its subject.

From the outside in:

    application   what comes of one request, step by step, and what is told of it
    credentials   who asks, by a key (`keys`) or a JWT (`tokens`): a `Principal`
    routing, rights, limits, problems, openapi, paging      pure decisions
    calls/        the table, by subject; each call runs on a thread, on behalf of one user. Those of
                  the library itself are made of `agent_memory.client.calls`, for its client
    static, page/ the page for people: a client of the table
    views/        the forms of answers
"""
