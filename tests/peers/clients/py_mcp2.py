"""The Python SDK 2.x as a client; see common.py for the arguments."""

from importlib.metadata import version

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from common import Progress, entered, main, plain, read_arguments, report


async def list_all(client):
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def run():
    args = read_arguments("elicit", "progress", "legacy")
    questions = []

    async def answer(_context, params):
        questions.append(plain(params))
        if args.elicit == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=entered(params.requested_schema))

    progress = Progress()
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {args.key}"}) as http:
        async with Client(
            streamable_http_client(args.url, http_client=http),
            mode="legacy" if args.legacy else "auto",
            elicitation_callback=answer if args.elicit else None,
            client_info=types.Implementation(name="py-mcp2", version="1.0.0"),
        ) as client:
            tools = await list_all(client)
            result = await client.call_tool(
                args.tool, args.arguments, progress_callback=progress if args.progress else None
            )
            report(
                "py_mcp2",
                version("mcp"),
                client.protocol_version,
                tools,
                plain(result),
                questions=questions if args.elicit else None,
                progress=progress.told if args.progress else None,
            )


main(run)
