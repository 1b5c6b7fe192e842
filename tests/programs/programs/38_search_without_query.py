from collections import Counter
from toolfold import search_tools

counts = Counter(tool["server"] for tool in search_tools())
for server, n in sorted(counts.items()):
    print(f"{server}: {n} tools")

readers = [t["name"] for t in search_tools(detail_level="name_only") if t["name"].startswith("get_")]
print(sorted(readers))
