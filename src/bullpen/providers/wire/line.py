"""A line to one model: a request of ours in, a reply of ours out, errors of ours.

It streams when somebody watches, or when the reply may be so long that an idle connection would be cut on the way;
else it asks for the whole, which costs a tenth of the CPU. Both ways give the same reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPartDelta,
)
from pydantic_ai.messages import TextPart as WireTextPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    Reply,
    ResultPart,
    StopReason,
    TextPart,
    ToolSpec,
    Usage,
)
from bullpen.domain.text import storable
from bullpen.errors import LeaseLost, Overloaded, UsageError
from bullpen.provider import ModelRequest
from bullpen.providers.account import Account
from bullpen.providers.wire.body import SAID
from bullpen.providers.wire.carried import LEAVE
from bullpen.providers.wire.client import close_model, open_model
from bullpen.providers.wire.fault import fault_of
from bullpen.providers.wire.message import called_names, incoming, outgoing
from bullpen.providers.wire.price import estimated_price_usd, list_price_usd, reply_price_usd
from bullpen.providers.wire.said import Said, has_thinking, one, one_for_each_result

MAX_UNSTREAMED_TOKENS = 20_000
CHARACTERS_PER_TOKEN = 4
_CACHED = {
    "anthropic_cache_tool_definitions": True,
    "anthropic_cache_instructions": True,
    # Explicitly on the newest block: the automatic way is unknown to many servers that speak this protocol.
    "anthropic_cache_messages": True,
}

_DROP_STALE_THINKING = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


class Line:
    def __init__(
        self, name: str, model: Model, account: Account, *, thinking: str | None, timeout_seconds: float
    ) -> None:
        self._name = name
        self._model = model
        self._account = account
        # Ours make one attempt by their construction; setting it again would copy the client for every call.
        attempts: dict[str, Any] = {"anthropic": _CACHED, "openai": {}, "openai-chat": {}}.get(
            account.provider, {"max_retries": 0, "cache": True}
        )
        self._settings = {**attempts, "request_timeout": timeout_seconds}
        if thinking is not None:
            self._settings["thinking"] = thinking
        self._tools: tuple[Sequence[ToolSpec], list[ToolDefinition]] = ((), [])

    @classmethod
    def open(cls, name: str, account: Account, *, thinking: str | None, timeout_seconds: float) -> Line:
        try:
            model = open_model(name, account, timeout_seconds=timeout_seconds)
        except ImportError as error:
            raise UsageError(f"{name} needs another package: {error}") from error
        except Exception as error:
            raise fault_of(error, name, account) from None
        return cls(name, model, account, thinking=thinking, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        await close_model(self._model, self._account)

    def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return estimated_price_usd(self._name, input_tokens=input_tokens, output_tokens=output_tokens)

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None) -> Reply:
        parameters, settings = self._parameters(request)
        messages = outgoing(self._unsaid(request, settings), provider=self._account.provider, system=self._model.system)
        # Asked here for all, and by the clients of our own once more when all is ready to be sent.
        await request.leave()
        asked = LEAVE.set(request.leave)
        try:
            if on_text is not None or request.max_output_tokens > MAX_UNSTREAMED_TOKENS:
                response = await self._stream(messages, parameters, settings, on_text)
            else:
                response = await model_request(
                    self._model, messages, model_settings=settings, model_request_parameters=parameters
                )
            self._learn(response)
            return self._reply(request, response)
        except LeaseLost:
            raise
        except Exception as error:
            # The contract promises only our errors, and a garbled reply makes the library stumble anywhere. Nothing
            # is chained: requests hang on the library's errors, and keys on requests.
            raise fault_of(error, self._name, self._account) from None
        finally:
            LEAVE.reset(asked)

    def _parameters(self, request: ModelRequest) -> tuple[ModelRequestParameters, ModelSettings]:
        settings = {**self._settings, "max_tokens": request.max_output_tokens}
        tools = self._definitions(request.tools)
        if not tools and (names := called_names(request.messages)):
            # A conversation with calls in it is refused without tools; these cannot be called.
            tools = [ToolDefinition(name=name, description="Not available now.", strict=False) for name in names]
            settings["tool_choice"] = "none"
        system = storable(request.system)
        parameters = ModelRequestParameters(
            function_tools=tools,
            instruction_parts=[InstructionPart(content=system)] if system.strip() else [],
        )
        return parameters, cast(ModelSettings, settings)

    def _unsaid(self, request: ModelRequest, settings: ModelSettings) -> Sequence[ChatMessage]:
        """The messages that are to be converted; what went out before, the client knows by the settings."""
        match self._account.provider:
            case "anthropic":
                said = request.memo.setdefault(self, Said(one))
            case "openai" | "openai-chat" if not has_thinking(request.messages):
                said = request.memo.setdefault(self, Said(one_for_each_result))
            case "openai" | "openai-chat":
                # There the library looks at all messages: once one has thought, each call has to have thought.
                said = Said(one_for_each_result)
            case _:
                return request.messages
        settings["extra_body"] = {SAID: said}
        return request.messages[said.recall(request.messages) :]

    def _definitions(self, tools: Sequence[ToolSpec]) -> list[ToolDefinition]:
        known, definitions = self._tools
        if known is not tools:
            definitions = [
                ToolDefinition(
                    name=tool.name,
                    description=storable(tool.description),
                    parameters_json_schema=storable(tool.parameters),
                    strict=False,
                )
                for tool in tools
            ]
            self._tools = (tools, definitions)
        return definitions

    async def _stream(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        settings: ModelSettings,
        on_text: Callable[[str], None] | None,
    ) -> ModelResponse:
        async with model_request_stream(
            self._model, messages, model_settings=settings, model_request_parameters=parameters
        ) as stream:
            async for event in stream:
                match event:
                    case (
                        PartStartEvent(part=WireTextPart(content=text))
                        | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                    ) if text and on_text is not None:
                        on_text(text)
        response = stream.get()
        if response.finish_reason is None and "finish_reason" not in (response.provider_details or {}):
            raise Overloaded(f"the reply of {self._name} broke off before its end")
        return response

    def _learn(self, response: ModelResponse) -> None:
        """Some models refuse thinking once anything before it was pruned, and the library asks a second time without.

        After the first such refusal of this account, the request says at once that stale thinking is to be dropped.
        """
        changes = (response.provider_details or {}).get("input_transformations") or ()
        if any(change.get("type") == "thinking_dropped" for change in changes) and "thinking" not in self._settings:
            self._settings["anthropic_thinking"] = _DROP_STALE_THINKING

    def _reply(self, request: ModelRequest, response: ModelResponse) -> Reply:
        taken = (part.call_id for message in request.messages for part in message.parts if isinstance(part, CallPart))
        cut = response.finish_reason == "length"
        parts = incoming(response, provider=self._account.provider, cut=cut, taken_ids=taken)
        refused = response.finish_reason == "content_filter"
        why = (response.provider_details or {}).get("refusal")
        if refused and isinstance(why, str) and not any(isinstance(part, TextPart) for part in parts):
            parts = (*parts, TextPart(why))
        if refused:
            stop = StopReason.REFUSAL
        elif cut:
            stop = StopReason.MAX_OUTPUT
        else:
            stop = StopReason.TOOL_USE if any(isinstance(part, CallPart) for part in parts) else StopReason.END_TURN
        message = AssistantMessage(parts)
        usage = _usage(response) or _estimated(request, message)
        return Reply(
            message=message,
            stop_reason=stop,
            usage=usage,
            model=response.model_name or self._name,
            cost_usd=self._cost(response, usage),
        )

    def _cost(self, response: ModelResponse, usage: Usage) -> float | None:
        if _usage(response) is not None:
            with suppress(LookupError, ValueError, AssertionError):
                return reply_price_usd(response)
        # The server calls the model by a name of its own, or says nothing of usage, which would cost nothing: the name
        # asked for decides.
        return list_price_usd(self._name, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


def _usage(response: ModelResponse) -> Usage | None:
    usage = response.usage
    if not usage.input_tokens and not usage.output_tokens:
        return None
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def _estimated(request: ModelRequest, message: AssistantMessage) -> Usage:
    """For servers that do not count: budgets and compaction must not believe that everything is free."""
    sent = len(request.system) + sum(_size(item) for item in request.messages)
    return Usage(
        input_tokens=sent // CHARACTERS_PER_TOKEN + 1, output_tokens=_size(message) // CHARACTERS_PER_TOKEN + 1
    )


def _size(message: ChatMessage) -> int:
    return sum(
        len(str(dict(part.arguments))) if isinstance(part, CallPart) else len(part.text)
        for part in message.parts
        if isinstance(part, CallPart | ResultPart | TextPart)
    )
