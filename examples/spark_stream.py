"""A stream over a queue: orders are counted by kind, files are written, and the queue is empty when all is safe.

`python examples/spark_stream.py` starts a namespace and a Spark of its own. In earnest it is a connection string in the
environment, and a master.
"""

import os
import tempfile
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.pipeline.session import open_session
from twinbus.testing import namespace


def main(folder: Path) -> None:
    with namespace() as bus:
        bus.create_queue("orders")
        with ServiceBusClient.from_connection_string(bus.connection_string) as client:
            kinds = ("book", "record", "picture")
            messages = [
                ServiceBusMessage(f"order {n}", message_id=f"order-{n}", subject=kinds[n % 3]) for n in range(300)
            ]
            client.get_queue_sender("orders").send_messages(messages)

        os.environ["ORDERS_CONNECTION_STRING"] = bus.connection_string
        spark = open_session("orders")
        reading = {"connectionStringEnv": "ORDERS_CONNECTION_STRING", "queue": "orders"}

        # A look takes nothing out.
        print(f"there are {spark.read.format('servicebus').options(**reading).load().count()} orders")

        orders = (
            spark.readStream.format("servicebus")
            .options(**reading, stagingLocation=str(folder / "staging"), maxMessagesPerTrigger="100")
            .load()
        )
        query = (
            orders.selectExpr("messageId", "subject", "CAST(body AS STRING) AS text", "enqueuedTime")
            .writeStream.format("parquet")
            .option("path", str(folder / "orders"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        for row in spark.read.parquet(str(folder / "orders")).groupBy("subject").count().orderBy("subject").collect():
            print(f"{row['subject']}: {row['count']}")
        print(f"left in the queue: {bus.counts('orders')['active']}")
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
