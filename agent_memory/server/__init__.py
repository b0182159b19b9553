"""The HTTP service: one memory for many users.

`agent_memory.client.calls` lists the library's calls with method, path and right. `calls` adds
those about the service itself. Routes, validation, authorization, its tests and the OpenAPI
document are derived from both.

From the outside in:

    application   handles a request, logs it and counts it; routes and responses are Starlette's
    credentials   authenticates a key (`keys`) or a JWT; returns a `Principal`
    wire          parses requests and encodes responses
    operation    the entries of the table of calls, and the context of a request
    calls, library     the operations; each runs on a thread, for one user
    inputs, forms, shapes     the input of a call, its answer, and the fields of a value
    rights, limits, problems, openapi     pure functions
    logs, metrics     the log, and the metrics of requests and of the memory
    static, page/      the web page, a client of the service
"""
