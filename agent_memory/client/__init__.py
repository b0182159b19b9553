"""The client: a memory that a service keeps, with the calls of `AgentMemory`.

    memory = AgentMemory("https://memory.example.com", api_key="am_...")

A `RemoteMemory` is an `AgentMemory`: whatever takes one takes the other, and `AsyncAgentMemory` is
over either. No call is typed here a second time. What a call takes and gives is told by the method
of the library that it stands for:

    calls     the table of what can be asked over a wire: names, rights, whose sessions. The service
              makes its operations below /v1/calls of it, and the client its methods
    values    what they take and give, as JSON and back, by the types that the methods name
    service   one request: the key, retries, and a problem as the error that the library raises
    handles   a class whose methods ask the service, made of one that does it itself
    memory    `RemoteMemory`, and what few calls are about more than one request
"""
