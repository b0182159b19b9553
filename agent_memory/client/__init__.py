"""The client: a memory behind a service, with the calls of `AgentMemory`.

    memory = AgentMemory("https://memory.example.com", api_key="am_...")

`RemoteMemory` is a subclass of `AgentMemory` and can replace it everywhere. `AsyncAgentMemory`
wraps either. No call is declared twice: parameters and results come from the library's signatures.

    calls     the table of calls: path, right, session access. The service derives its operations
              from it, and the client its methods
    values    arguments and results as JSON and back, by the types in the signatures
    service   one request: the key, retries, and a problem as the error that the library raises
    handles   classes whose methods call the service, derived from the library's classes
    memory    `RemoteMemory`, and the few calls that take more than one request
"""
