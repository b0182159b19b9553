"""The HTTP service: one memory for many users.

`agent_memory.client.calls` lists the library's calls with method, path and right. `calls` adds the
calls that only the service has. Routes, validation, authorization and the OpenAPI document derive
from both lists. The modules, in the order in which a request meets them:

    application   handles, logs and counts a request, with Starlette's routes and responses
    credentials   authenticates a key (`keys`) or a JWT, and returns a `Principal`; rate limits
    wire          parses requests and encodes responses
    batching      runs short calls together
    operation     `Operation`, the description of a call; `At`, the context of a request; OpenAPI
    calls, library     the operations; each runs on a thread, for one user
    inputs, forms, shapes     the inputs of calls, the responses, and the fields of values
    problems      the problem details of refused and failed calls
    monitoring    the log, and the metrics of requests and of the memory
    static, page/      the web page, which is a client of the service
"""
