"""FastMCP as a client; see common.py for the arguments."""

from importlib.metadata import version

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from common import Progress, main, plain, read_arguments, report


async def run():
    args = read_arguments("progress")
    progress = Progress()
    headers = {"Authorization": f"Bearer {args.key}"}
    async with Client(StreamableHttpTransport(args.url, headers=headers)) as client:
        # It follows the cursors itself.
        tools = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool_mcp(
            args.tool, args.arguments or {}, progress_handler=progress if args.progress else None
        )
        report(
            "py_fastmcp",
            version("fastmcp"),
            client.protocol_version,
            tools,
            plain(result),
            progress=progress.told if args.progress else None,
        )


main(run)
