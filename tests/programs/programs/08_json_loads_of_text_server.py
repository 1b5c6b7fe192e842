```python
import json
from servers.crm_tools import list_contacts, search_companies

contacts = json.loads(await list_contacts(tag="vip"))
for c in contacts:
    companies = json.loads(await search_companies(c["company"]))
    company = companies["items"][0]
    print(f'{c["name"]} works at {company["name"]} ({company["employees"]} employees)')
```
