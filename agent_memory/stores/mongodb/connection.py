"""Connections to a MongoDB deployment, its commands, and the translation of errors.

If the connection breaks, a command is sent a second time, so a write may run twice. The second run
may not match its document any more. The `marks` of the document then show that the first run
succeeded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import MissingExtra, StoreError, StoreUnavailable
from agent_memory.stores.base import UNSURE, Durability

try:
    from bson.codec_options import CodecOptions
    from bson.errors import BSONError
    from pymongo import MongoClient, ReadPreference, ReturnDocument, WriteConcern, errors
    from pymongo.collection import Collection
    from pymongo.database import Database
    from pymongo.operations import DeleteMany, IndexModel, UpdateOne
    from pymongo.read_concern import ReadConcern
except ImportError as error:
    raise MissingExtra("A MongoDB store", "mongodb") from error

T = TypeVar("T")
Doc = dict[str, Any]

_DATABASE = "agent_memory"
_SETTINGS: dict[str, Any] = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "socketTimeoutMS": 30_000,
    "waitQueueTimeoutMS": 30_000,
    "maxPoolSize": 32,
    "appname": "agent-memory",
}
_DUPLICATE = 11000
_AUTHENTICATION = 18
_UNAUTHORIZED = 13
_UNAVAILABLE = (
    errors.ConnectionFailure,
    errors.InvalidOperation,
    errors.ConfigurationError,
    errors.ExecutionTimeout,
    errors.WriteConcernError,
)
_left_to_parents: list[object] = []


class Deployment:
    """A database of a MongoDB deployment. A forked child connects again."""

    def __init__(self, url: str, durability: Durability | None = None) -> None:
        self._url = url
        self._journal = None if durability == "process" else True
        self._hosts, self._name, self._options = _parts(url)
        self._client: MongoClient[Doc] | None = None
        self._database: Database[Doc] | None = None
        self._closed = False
        self._connecting = threading.Lock()
        self._connected()
        begin_anew_in_child(self, Deployment._begin_anew)

    def table(self, name: str) -> Table:
        return Table(self, name)

    def run(self, name: str, work: Callable[[Collection[Doc]], T]) -> T:
        """Run a command on a collection. If the connection breaks, run it a second time.

        Raises:
            StoreUnavailable: The deployment cannot be used now, or refuses the user.
            StoreError: The deployment refuses the command.
        """
        try:
            try:
                return work(self._connected()[name])
            except (errors.ServerSelectionTimeoutError, errors.NetworkTimeout):
                raise
            except errors.AutoReconnect:
                return work(self._connected()[name])
        except (errors.PyMongoError, BSONError) as failed:
            failure = self._failure(failed)
        raise failure  # without a cause, because the driver's error may quote the data

    def close(self) -> None:
        with self._connecting:
            self._closed = True
            client, self._client, self._database = self._client, None, None
        if client is not None:
            client.close()

    def _connected(self) -> Database[Doc]:
        database = self._database
        if database is None:
            with self._connecting:
                if self._closed:
                    raise StoreUnavailable("The store was closed. Open a new one.")
                database = self._database = self._database or self._connect()
        return database

    def _connect(self) -> Database[Doc]:
        settings = {key: at for key, at in _SETTINGS.items() if key.lower() not in self._options}
        client: MongoClient[Doc] | None = None
        try:
            client = MongoClient[Doc](self._url, **settings)
            database = client.get_database(
                self._name,
                codec_options=CodecOptions(),
                read_preference=ReadPreference.PRIMARY,
                write_concern=WriteConcern("majority", j=self._journal),
            )
            hello = client.admin.command("hello")
            if "setName" in hello or hello.get("msg") == "isdbgrid":
                database = database.with_options(read_concern=ReadConcern("majority"))
            self._client, client = client, None
            return database
        except (errors.PyMongoError, ValueError) as failed:
            is_unusable = client is None or isinstance(failed, errors.InvalidName)
            name = type(failed).__name__
            failure = _unusable(name) if is_unusable else self._failure(failed)
        finally:
            if client is not None:
                client.close()
        raise failure  # without a cause, as in `run`

    def _begin_anew(self) -> None:
        """Forget the connections in a forked child, because the parent still uses them."""
        _left_to_parents.append(self._client)  # closing the client would end the parent's sessions
        self._client = self._database = None
        self._connecting = threading.Lock()

    def _failure(self, failed: Exception) -> StoreError:
        if self._closed:
            return StoreUnavailable("The store was closed. Open a new one.")
        where = f"The MongoDB deployment at {self._hosts} (database {self._name!r})"
        code = failed.code if isinstance(failed, errors.OperationFailure) else None
        named = f"{type(failed).__name__}{'' if code is None else f', code {code}'}"
        if code == _AUTHENTICATION:
            return StoreUnavailable(
                f"{where} refused the user or the password ({named}). Check both in `store`, and "
                "the database that stores the user (?authSource=...)."
            )
        if code == _UNAUTHORIZED:
            return StoreUnavailable(
                f"{where} does not permit this to the user in `store` ({named}). Grant readWrite "
                "on that database."
            )
        if isinstance(failed, _UNAVAILABLE):
            text = f"{where} could not be used ({named}). Check that it runs, and `store`."
            return StoreUnavailable(UNSURE.format(text))
        return StoreError(f"{where} refused a command ({named}).")


def _parts(url: str) -> tuple[str, str, set[str]]:
    """Return the hosts, the database and the names of the options, as the driver parses a URL."""
    place, _, options = url.partition("://")[2].partition("?")
    hosts, _, database = place.partition("/")
    if "@" in database or ("@" not in hosts and "@" in options):
        raise _unusable("no URL")
    named = {key.lower() for key, _ in parse_qsl(options)}
    return hosts.rpartition("@")[2], unquote(database) or _DATABASE, named


def _unusable(why: str) -> StoreUnavailable:
    # the driver's error is not shown, because it may repeat a part of the URL
    return StoreUnavailable(
        f"MongoDB's driver cannot use the URL in `store` ({why}). Write "
        "mongodb://user:password@host:27017/database, or mongodb+srv:// with a host that can be "
        "looked up; percent-encode the user's name and the password."
    )


class Table:
    """A collection, reduced to the commands that the kernel uses."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment = deployment
        self._name = name

    def _run(self, work: Callable[[Collection[Doc]], T]) -> T:
        return self._deployment.run(self._name, work)

    def index(self, keys: Sequence[Sequence[str]], *, sparse: bool = False) -> None:
        models = [IndexModel([(name, 1) for name in key], sparse=sparse) for key in keys]
        self._run(lambda it: it.create_indexes(models))

    def find_one(self, which: Doc, fields: Doc | None = None) -> Doc | None:
        return self._run(lambda it: it.find_one(which, fields))

    def all(
        self, which: Doc, fields: Doc | None = None, *, by: Sequence[str] = (), limit: int = 0
    ) -> list[Doc]:
        order = [(name, 1) for name in by] or None
        return self._run(lambda it: list(it.find(which, fields, sort=order, limit=limit)))

    def distinct(self, field: str, which: Doc) -> list[Any]:
        return self._run(lambda it: it.distinct(field, which))

    def insert(self, docs: Sequence[Doc]) -> None:
        """Insert documents. Skip each document whose `_id` exists already."""

        def work(it: Collection[Doc]) -> None:
            try:
                it.insert_many(docs, ordered=False)
            except errors.BulkWriteError as failed:
                _check_duplicates(failed)

        if docs:
            self._run(work)

    def update(self, which: Doc, change: Doc, *, upsert: bool = False) -> bool:
        """Change one document. Return whether a document matched or was inserted."""

        def work(it: Collection[Doc]) -> bool:
            try:
                done = it.update_one(which, change, upsert=upsert)
            except errors.DuplicateKeyError:
                return False  # the document exists, and does not match
            return done.matched_count == 1 or done.upserted_id is not None

        return self._run(work)

    def update_idempotent(self, which: Doc, change: Doc, op: str, *, upsert: bool = False) -> bool:
        """Change a document if it matches, and return whether it was changed.

        If the first reply was lost, the repeated command does not match, but `marks` has `op`.
        """
        return self.update(which, change, upsert=upsert) or (
            self.find_one({"_id": which["_id"], "marks": op}, {"_id": 1}) is not None
        )

    def update_all(self, which: Doc, change: Doc) -> None:
        self._run(lambda it: it.update_many(which, change))

    def update_each(
        self, changes: Sequence[tuple[Doc, Doc]], *, upsert: bool = False, delete: Doc | None = None
    ) -> set[str]:
        """Delete the documents that match `delete`, then apply each change to one document.

        Return the `_id`s of inserted documents; an empty set if an insertion met an existing `_id`.
        """
        models: list[Any] = [] if delete is None else [DeleteMany(delete)]
        models += [UpdateOne(which, change, upsert=upsert) for which, change in changes]

        def work(it: Collection[Doc]) -> set[str]:
            try:
                return set((it.bulk_write(models).upserted_ids or {}).values())
            except errors.BulkWriteError as failed:
                _check_duplicates(failed)
                return set()

        return self._run(work) if models else set()

    def swap(self, which: Doc, change: Doc, fields: Doc) -> Doc | None:
        """Change one document. Return the changed document, or None if none matched."""
        return self._run(
            lambda it: it.find_one_and_update(
                which, change, fields, return_document=ReturnDocument.AFTER
            )
        )

    def delete(self, which: Doc) -> bool:
        return self._run(lambda it: it.delete_one(which).deleted_count == 1)

    def delete_all(self, which: Doc) -> None:
        self._run(lambda it: it.delete_many(which))

    def group(self, which: Doc, sums: Doc) -> Doc:
        steps = [{"$match": which}, {"$group": {"_id": None, **sums}}]
        return next(iter(self._run(lambda it: list(it.aggregate(steps)))), {})


def _check_duplicates(failed: errors.BulkWriteError) -> None:
    """Raise the error, unless it only reports `_id`s that exist already."""
    failures = failed.details.get("writeErrors", [])
    if any(each.get("code") != _DUPLICATE for each in failures) or not failures:
        raise failed
