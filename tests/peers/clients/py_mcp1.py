"""The Python SDK 1.x as a client; see common.py for the arguments. It only knows the era of `initialize`."""

from importlib.metadata import version

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client

from common import Progress, entered, main, plain, read_arguments, report


async def list_all(session):
    names, cursor = [], None
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        names += [tool.name for tool in page.tools]
        cursor = page.nextCursor
        if cursor is None:
            return names


async def run():
    args = read_arguments("elicit", "progress")
    questions = []

    async def answer(_context, params):
        questions.append(plain(params))
        if args.elicit == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=entered(params.requestedSchema))

    progress = Progress()
    headers = {"Authorization": f"Bearer {args.key}"}
    async with streamablehttp_client(args.url, headers=headers) as (read, write, _session_id):
        async with ClientSession(
            read,
            write,
            elicitation_callback=answer if args.elicit else None,
            client_info=types.Implementation(name="py-mcp1", version="1.0.0"),
        ) as session:
            opened = await session.initialize()
            tools = await list_all(session)
            result = await session.call_tool(
                args.tool, args.arguments, progress_callback=progress if args.progress else None
            )
            report(
                "py_mcp1",
                version("mcp"),
                opened.protocolVersion,
                tools,
                plain(result),
                questions=questions if args.elicit else None,
                progress=progress.told if args.progress else None,
            )


main(run)
