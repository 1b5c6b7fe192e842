import servers.shop as s
import servers.crm_tools

cancelled = await s.list_orders("cancelled")
company = await servers.crm_tools.search_companies("grid")
print(len(cancelled), company["items"][0]["name"])
