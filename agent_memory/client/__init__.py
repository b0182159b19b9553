"""The client: a memory behind a service, with the calls of `AgentMemory`.

    memory = AgentMemory("https://memory.example.com", api_key="am_...")

`RemoteMemory` is a subclass of `AgentMemory`; `docs/client.md` lists its limitations.
`AsyncAgentMemory` wraps either class. Parameters and results of calls come from the library's
signatures.

    calls     the table of calls: path, right and session check of each. The operations of the
              service and the methods of the client are derived from the table
    values    converts arguments and results to JSON and back, by the types in the signatures
    service   sends a request with the key and retries, and raises the library's errors
    handles   derives classes whose methods call the service from the library's classes
    memory    `RemoteMemory`, with the few calls that need more than one request
"""
