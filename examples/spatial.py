"""Store what a robot saw and where, with a confidence that fades over time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from agent_memory import AgentMemory, SpatialMemory

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)

SEEN = [  # days after Monday, metres from the front door, the camera's confidence
    (0, (1.0, 6.5), 1.0, "Charging station by the kitchen door."),
    (0, (4.0, 8.0), 0.9, "Keys on the kitchen table."),
    (0, (2.0, 1.0), 0.6, "Something red on the floor, perhaps a ball."),
    (7, (6.5, 2.0), 1.0, "Keys on the shelf in the hall."),
    (7, (5.0, 2.5), 0.8, "A puddle of water."),
]


def main() -> None:
    """Store observations of two Mondays, then query them by text, time, box and radius."""
    block = SpatialMemory(half_life=7 * DAY, min_confidence=0.1)
    with AgentMemory(store="memory://", blocks=[block]) as memory:
        places = memory.user("robot-7").spatial()
        places.observe_many(
            [
                {"text": text, "position": where, "at": MONDAY + days * DAY, "confidence": sure}
                for days, where, sure, text in SEEN
            ]
        )
        for days in (0, 7, 21):
            print(f"The keys, as of {MONDAY + days * DAY:%d %B}, from the front door:")
            for one in places.near((0, 0), k=2, query="the keys", at=MONDAY + days * DAY):
                print(
                    f"  {one.score:.2f}  {one.observation.text}  "
                    f"({one.distance:.1f} m away, confidence {one.confidence:.2f})"
                )

        print("In the hall, which is the box from (0, 0) to (8, 4):")
        for one in places.within((0, 0), (8, 4), at=MONDAY + 8 * DAY):
            print(f"  {one.confidence:.2f}  {one.observation.text}")

        print("What is within 2 m of the shelf:")
        for one in places.near((6.5, 2), radius=2, at=MONDAY + 8 * DAY):
            print(f"  {one.distance:.1f} m  {one.observation.text}")

        print("A model asks by tool, for whoever it serves:")
        robot = memory.session("patrol-1", "robot-7")
        robot.call_tool("spatial_observe", {"text": "The door is open.", "position": [0, 0.5]})
        answer = robot.call_tool("spatial_near", {"position": [0, 0], "radius": 1})
        print(f"  {[(one['text'], one['distance']) for one in json.loads(answer)]}")


if __name__ == "__main__":
    main()
