"""Ask an index as an assistant does: `assistant.py INDEXMILL STORE QUESTION K` prints the hits as JSON.

Starts `indexmill mcp` and speaks the Model Context Protocol over standard input and output, with the protocol's client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def search(command: str, store: str, question: str, k: int) -> object:
    server = StdioServerParameters(command=command, args=["mcp", store], env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        result = await client.call_tool("search", {"question": question, "k": k})
    if result.is_error or result.structured_content is None:
        raise RuntimeError(str(result.content))
    return result.structured_content["hits"]


if __name__ == "__main__":
    command, store, question, k = sys.argv[1:]
    print(json.dumps(asyncio.run(search(command, store, question, int(k)))))
