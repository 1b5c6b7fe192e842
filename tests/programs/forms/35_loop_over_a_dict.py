from servers.crm_tools import search_companies

found = await search_companies("a")
for company in found:
    print(company["name"])
