import pandas as pd
from servers.shop import list_orders

df = pd.DataFrame(await list_orders())
print(df.groupby("status")["total"].sum())
