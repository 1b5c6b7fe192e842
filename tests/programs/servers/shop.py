"""A small web shop as an MCP server over stdio, written with the Python SDK's high-level server.

Everything is in memory and nothing depends on the clock or on chance: after `restore_shop` (or a restart) the same
calls give the same answers. Between them the tools return every shape that such servers return in practice. What
changes the records is `async`, so that it runs on the server's one loop and no two writes can meet.
"""

import base64
import json
from typing import Annotated, Literal

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

Status = Literal["pending", "shipped", "cancelled"]

# A PNG of one pixel, 70 bytes.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Product(TypedDict):
    sku: str
    name: str
    category: str
    price: float
    stock: int


class Address(BaseModel):
    city: str
    country: str


class Customer(BaseModel):
    id: str
    name: str
    email: str
    address: Address | None = None


class NewCustomer(BaseModel):
    name: str
    email: str
    city: str | None = None
    country: str | None = None


class OrderItem(BaseModel):
    sku: str
    quantity: int = Field(default=1, ge=1)


class OrderLine(BaseModel):
    sku: str
    quantity: int
    unit_price: float


class Order(BaseModel):
    id: str
    customer: str
    status: Status
    total: float


class OrderDetail(BaseModel):
    id: str
    status: Status
    customer: Customer
    lines: list[OrderLine]
    total: float
    note: str | None = None


class Shipment(BaseModel):
    order_id: str
    carrier: str
    state: str


class ExportJob(TypedDict):
    job_id: str
    state: Literal["queued", "running", "done"]
    percent: int


class Shop:
    """The shop's records; a new one is the sample data."""

    def __init__(self) -> None:
        self.restore()

    def restore(self) -> None:
        self.created = 0
        self.last = 1000
        self.polls: dict[str, int] = {}
        self.products: dict[str, Product] = {
            product["sku"]: product
            for product in (
                Product(sku="BK-01", name="Python Cookbook", category="books", price=39.9, stock=12),
                Product(sku="BK-02", name="Networks Explained", category="books", price=24.5, stock=0),
                Product(sku="HM-01", name="Desk Lamp", category="home", price=32.0, stock=7),
                Product(sku="HM-02", name="Kettle", category="home", price=45.0, stock=3),
                Product(sku="TY-01", name="Wooden Train", category="toys", price=19.9, stock=25),
                Product(sku="TY-02", name="Puzzle 1000", category="toys", price=14.5, stock=40),
            )
        }
        self.customers: dict[str, Customer] = {
            name: Customer(
                id=f"C-{number}",
                name=name,
                email=f"{name.split()[0].lower()}@example.com",
                address=Address(city=city, country=country),
            )
            for number, (name, city, country) in enumerate(
                (
                    ("Ada Lovelace", "London", "GB"),
                    ("Grace Hopper", "New York", "US"),
                    ("Alan Turing", "Manchester", "GB"),
                    ("Edith Clarke", "Austin", "US"),
                ),
                start=1,
            )
        }
        self.orders: dict[str, OrderDetail] = {}
        self.add("Ada Lovelace", {"BK-01": 1, "TY-02": 2}, "shipped")
        self.add("Grace Hopper", {"HM-02": 2}, "pending", note="Leave at the door")
        self.add("Ada Lovelace", {"TY-02": 1}, "pending")
        self.add("Alan Turing", {"HM-01": 3}, "cancelled")
        self.add("Grace Hopper", {"TY-01": 1, "BK-02": 1}, "shipped")
        self.add("Edith Clarke", {"BK-01": 2, "HM-01": 1}, "pending")

    def add(self, customer: str, items: dict[str, int], status: Status, note: str | None = None) -> OrderDetail:
        self.last += 1
        lines = [
            OrderLine(sku=sku, quantity=quantity, unit_price=self.products[sku]["price"])
            for sku, quantity in items.items()
        ]
        order = OrderDetail(
            id=f"O-{self.last}",
            status=status,
            customer=self.customers[customer],
            lines=lines,
            total=round(sum(line.quantity * line.unit_price for line in lines), 2),
            note=note,
        )
        self.orders[order.id] = order
        return order

    def add_customer(self, new: NewCustomer) -> Customer:
        address = Address(city=new.city, country=new.country or "") if new.city else None
        customer = Customer(id=f"C-{len(self.customers) + 1}", name=new.name, email=new.email, address=address)
        self.customers[new.name] = customer
        return customer

    def find(self, order_id: str) -> OrderDetail:
        if order_id not in self.orders:
            raise ToolError(f"Order {order_id} not found")
        return self.orders[order_id]


def brief(order: OrderDetail) -> Order:
    return Order(id=order.id, customer=order.customer.name, status=order.status, total=order.total)


READ = ToolAnnotations(read_only_hint=True)

shop = Shop()
server = MCPServer("shop", instructions="Orders, products and customers of a small web shop.", log_level="ERROR")


@server.tool(annotations=READ)
def list_orders(status: Status | None = None, customer: str | None = None, limit: int = 50) -> list[Order]:
    """List orders, oldest first, optionally only those with a status or of a customer."""
    found = [
        brief(order)
        for order in shop.orders.values()
        if status in (None, order.status) and customer in (None, order.customer.name)
    ]
    return found[:limit]


@server.tool(annotations=READ)
def get_order(order_id: Annotated[str, Field(description="For example O-1001")]) -> OrderDetail:
    """Get one order with its customer and lines."""
    return shop.find(order_id)


@server.tool(annotations=READ)
def search_products(query: str, category: str | None = None, max_price: float | None = None) -> list[Product]:
    """Search products by words in their name. An empty query matches every product."""
    return [
        product
        for product in shop.products.values()
        if query.lower() in product["name"].lower()
        and category in (None, product["category"])
        and (max_price is None or product["price"] <= max_price)
    ]


@server.tool(annotations=READ)
def list_categories() -> list[str]:
    """List the product categories."""
    return sorted({product["category"] for product in shop.products.values()})


@server.tool(annotations=READ)
def get_policy(topic: Literal["returns", "shipping"]) -> str:
    """Get the text of a shop policy."""
    return {
        "returns": "Returns are accepted within 30 days.\nThe customer pays the postage.",
        "shipping": "Orders over 50 euros are shipped free of charge.",
    }[topic]


@server.tool(annotations=READ)
def get_invoice_number(order_id: str) -> str:
    """Get the invoice number of an order: seven digits."""
    return "900" + shop.find(order_id).id.removeprefix("O-")


@server.tool(annotations=READ)
def export_orders(status: Status | None = None) -> str:
    """Export orders. Returns a JSON string: an array of objects with id, customer, status and total."""
    return json.dumps([brief(order).model_dump() for order in shop.orders.values() if status in (None, order.status)])


@server.tool(annotations=READ, structured_output=False)
def inventory_report() -> str:
    """Report what is in stock. Returns a JSON string with total_units, value and out_of_stock."""
    products = list(shop.products.values())
    report = {
        "total_units": sum(product["stock"] for product in products),
        "value": round(sum(product["stock"] * product["price"] for product in products), 2),
        "out_of_stock": [product["sku"] for product in products if not product["stock"]],
    }
    return json.dumps(report, indent=2)


@server.tool(annotations=READ)
def count_orders(status: Status | None = None) -> int:
    """Count orders, optionally only those with a status."""
    return sum(1 for order in shop.orders.values() if status in (None, order.status))


@server.tool(annotations=READ)
def average_order_value(status: Status | None = None) -> float:
    """The average total of orders in euros."""
    totals = [order.total for order in shop.orders.values() if status in (None, order.status)]
    return round(sum(totals) / len(totals), 2) if totals else 0.0


@server.tool(annotations=READ)
def in_stock(sku: str, quantity: int = 1) -> bool:
    """Whether so many of a product are in stock."""
    if sku not in shop.products:
        raise ToolError(f"Unknown product {sku}")
    return shop.products[sku]["stock"] >= quantity


@server.tool(annotations=READ)
def stock_levels(skus: list[str] | None = None) -> dict[str, int]:
    """Units in stock by SKU; of all products if no SKUs are given."""
    return {sku: product["stock"] for sku, product in shop.products.items() if skus is None or sku in skus}


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
async def create_order(customer: str, items: list[OrderItem], note: str | None = None) -> Order:
    """Create an order for an existing customer, by name."""
    if customer not in shop.customers:
        raise ToolError(f"Unknown customer {customer}")
    unknown = [item.sku for item in items if item.sku not in shop.products]
    if unknown:
        raise ToolError(f"Unknown product {unknown[0]}")
    order = shop.add(customer, {item.sku: item.quantity for item in items}, "pending", note)
    shop.created += 1
    return brief(order)


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
async def create_customer(customer: NewCustomer, send_welcome: bool = False) -> Customer:
    """Create a customer and optionally send the welcome e-mail."""
    created = shop.add_customer(customer)
    shop.created += 1
    return created


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def update_order_status(order_id: str, status: Status) -> Order:
    """Set the status of an order."""
    order = shop.find(order_id)
    order.status = status
    return brief(order)


@server.tool()
async def apply_discount(order_id: str, percent: float) -> Order:
    """Reduce the total of an order by a percentage, at most 50."""
    order = shop.find(order_id)
    if not 0 < percent <= 50:
        raise ToolError(f"Invalid argument percent: must be between 0 and 50, got {percent:g}")
    order.total = round(order.total * (1 - percent / 100), 2)
    return brief(order)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def delete_order(order_id: str) -> None:
    """Delete an order for good."""
    del shop.orders[shop.find(order_id).id]


@server.tool(annotations=READ)
async def track_shipment(order_id: str) -> Shipment:
    """Ask the carrier where an order is. Takes a moment."""
    order = shop.find(order_id)
    await anyio.sleep(0.2)
    state = {"pending": "not yet handed over", "shipped": "delivered", "cancelled": "returned"}[order.status]
    return Shipment(order_id=order.id, carrier="Postal Express", state=state)


@server.tool(annotations=READ)
def shipping_label(order_id: str) -> Image:
    """The shipping label of an order, as a PNG image."""
    shop.find(order_id)
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READ)
def order_history(order_id: str) -> list[TextContent]:
    """What happened to an order, one text for each event."""
    order = shop.find(order_id)
    events = [f"{order.id} was placed by {order.customer.name}", f"{order.id} is {order.status}"]
    return [TextContent(type="text", text=event) for event in events]


@server.tool()
def clear_cart(customer: str) -> CallToolResult:
    """Empty a customer's cart."""
    if customer not in shop.customers:
        raise ToolError(f"Unknown customer {customer}")
    return CallToolResult(content=[])


@server.tool()
async def start_export(kind: Literal["orders", "products"]) -> str:
    """Start an export in the background. Returns the id of the job, for export_status."""
    job_id = f"job-{kind}-{len(shop.polls) + 1}"
    shop.polls[job_id] = 0
    return job_id


@server.tool(annotations=READ)
async def export_status(job_id: str) -> ExportJob:
    """The state of an export job. A job is done when it is asked about for the third time."""
    if job_id not in shop.polls:
        raise ToolError(f"Unknown job {job_id}")
    shop.polls[job_id] += 1
    looks = min(shop.polls[job_id], 3)
    state: Literal["queued", "running", "done"] = ("queued", "running", "done")[looks - 1]
    return ExportJob(job_id=job_id, state=state, percent=(0, 60, 100)[looks - 1])


@server.tool(annotations=READ)
def count_created() -> int:
    """How many orders and customers have been created since the start or the last restore_shop."""
    return shop.created


@server.tool()
async def restore_shop() -> None:
    """Put the sample data back and start counting from zero."""
    shop.restore()


if __name__ == "__main__":
    server.run()
