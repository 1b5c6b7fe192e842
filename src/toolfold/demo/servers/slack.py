"""`slack`: channels with a little history; the deploy bot reports its ten stages, one at each look."""

from __future__ import annotations

from typing import Any

from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import record, text, whole

_STAGES = (
    "deployment of payments 4.2.0 started by @noor",
    "building image payments:4.2.0",
    "image pushed, 214 MB",
    "database migration 0091_ledger_index is running",
    "migration finished, 3.1 million rows checked",
    "canary at 5 %, error rate 0.02 %",
    "rollout at 25 %",
    "rollout at 60 %",
    "rollout at 100 %, draining the old pods",
    "deployment complete: payments 4.2.0 is live",
)
_CHANNELS = {"C0DEPLOY": "deployments", "C0FINOPS": "finance-ops", "C0SALES": "sales", "C0GENERAL": "general"}
_SMALL_TALK = (
    ("U0LENA", "The retro notes are in the shared drive."),
    ("U0MARC", "I will be back at 14:00, ping me if staging misbehaves."),
    ("U0NOOR", "Reminder: the freeze for the quarter's end starts on Thursday."),
    ("U0IDRIS", "Thanks everyone, the customer call went well."),
)
_START = 1_788_000_000


class _Workspace:
    def __init__(self) -> None:
        self._looks = 0
        self._posted: dict[str, list[dict[str, str]]] = {channel: [] for channel in _CHANNELS}

    def history(self, arguments: Arguments) -> dict[str, Any]:
        channel = _channel(arguments["channel"])
        messages = [
            {"user": user, "text": said, "ts": f"{_START + 60 * at}.000100"}
            for at, (user, said) in enumerate(_SMALL_TALK)
        ]
        if channel == "C0DEPLOY":
            self._looks += 1
            messages += [
                {"user": "B0DEPLOYBOT", "text": stage, "ts": f"{_START + 1000 + 45 * at}.000200"}
                for at, stage in enumerate(_STAGES[: self._looks])
            ]
        messages += self._posted[channel]
        return {"ok": True, "channel": channel, "messages": messages[::-1][: arguments["limit"]]}

    def post(self, arguments: Arguments) -> dict[str, Any]:
        channel = _channel(arguments["channel"])
        posted = self._posted[channel]
        message = {
            "user": "U0AGENT",
            "text": arguments["text"],
            "ts": f"{_START + 5000 + len(posted)}.000300",
        }
        if thread := arguments.get("thread_ts"):
            message["thread_ts"] = thread
        posted.append(message)
        return {"ok": True, "channel": channel, "ts": message["ts"]}


def _channel(wanted: str) -> str:
    name = wanted.removeprefix("#")
    for identifier, known in _CHANNELS.items():
        if name in (identifier, known):
            return identifier
    raise Refusal(f"channel_not_found: {wanted}; there are " + ", ".join(f"#{name}" for name in _CHANNELS.values()))


def server() -> DemoServer:
    workspace = _Workspace()
    channel = text("Channel id or #name, for example #deployments")
    return DemoServer(
        "slack",
        (
            DemoTool(
                name="get_channel_history",
                title="Read a channel",
                description=(
                    "Read the latest messages of a Slack channel, newest first. "
                    "Returns channel and messages, each with user, text and ts."
                ),
                arguments=record(
                    {
                        "channel": channel,
                        "limit": whole("How many messages at most", minimum=1, maximum=200, default=20),
                    },
                    optional=("limit",),
                ),
                defaults={"limit": 20},
                run=workspace.history,
            ),
            DemoTool(
                name="post_message",
                title="Post a message",
                description="Post a message to a Slack channel as the agent's user. Returns channel and ts.",
                arguments=record(
                    {
                        "channel": channel,
                        "text": text("The message, in Slack's mrkdwn", minLength=1, maxLength=40_000),
                        "thread_ts": text("The ts of the message to reply to, for an answer in its thread"),
                    },
                    optional=("thread_ts",),
                ),
                writes=True,
                open_world=True,
                run=workspace.post,
            ),
        ),
    )
