// Joins brings two streams together, batch by batch: the orders of a bakery and
// the payments for them.
package main

import (
	"cmp"

	"github.com/tidemill/tidemill"
)

func main() {
	orders, payments := tenMinutes()
	tidemill.Main(app(orders, payments))
}

type (
	order   = tidemill.Pair[int, string] // order number, what was ordered
	payment = tidemill.Pair[int, int]    // order number, cents
)

// app is the job. Each entry of a queue is the input of one batch.
func app(orders *tidemill.Queue[order], payments *tidemill.Queue[payment]) tidemill.App {
	return tidemill.App{
		Name: "joins",
		Build: func(ssc *tidemill.StreamingContext) error {
			ordered := tidemill.QueueStream(ssc, "orders", orders)
			paid := tidemill.QueueStream(ssc, "payments", payments)
			// A join sees one batch of either stream: an order whose payment comes
			// a batch later stays without.
			//
			// Where a side may be missing its value is an Opt, shown as "none".
			printSorted(tidemill.Join(ordered, paid), "paid")
			printSorted(tidemill.LeftOuterJoin(ordered, paid), "all-orders")
			printSorted(tidemill.FullOuterJoin(ordered, paid), "orders-and-payments")
			// Payments of this batch with orders of the last three: late ones meet
			// their orders.
			recent := tidemill.Window(ordered, 3*ordered.Slide(), ordered.Slide())
			printSorted(tidemill.Join(recent, paid), "paid-also-late")
			return nil
		},
	}
}

// printSorted prints a stream by order number: a join leaves keys in no order.
func printSorted[V any](d tidemill.DStream[tidemill.Pair[int, V]], name string) {
	tidemill.Print(tidemill.SortByKey(d, cmp.Compare[int]), name, 10)
}

// tenMinutes fills the queues with a batch a second. Every third order is paid
// one batch late.
func tenMinutes() (*tidemill.Queue[order], *tidemill.Queue[payment]) {
	var orders tidemill.Queue[order]
	var payments tidemill.Queue[payment]
	for n := 1; n <= 3*600; n += 3 {
		orders.Push(tidemill.KV(n, "bread"), tidemill.KV(n+1, "rolls"), tidemill.KV(n+2, "cake"))
		late := n - 1 // of the batch before
		payments.Push(tidemill.KV(n, 320), tidemill.KV(n+1, 150), tidemill.KV(late, 1200))
	}
	return &orders, &payments
}
