package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// node serves the type counter in this process and returns the node's address.
// Your program uses the addresses of its nodes instead, such as those that
// hostd dev prints.
func node() (address string, stop func()) {
	l, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		log.Fatal(err)
	}
	w := rpctest.New()
	server := services.NewServer(w.Services(), edge.Options{NodeID: "n1"})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	return l.Addr().String(), func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // connections need not be drained
		_ = server.Shutdown(ctx)
		<-ended
		w.Close()
	}
}

// Send a command to an entity, which exists as soon as it is named, and query
// it.
func Example() {
	address, stop := node()
	defer stop()

	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	reply, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":3}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at sequence %d\n", reply.Data, reply.Sequence)

	answer, err := c.Query(ctx, client.Query{EntityType: "counter", EntityID: "visits", Name: "total"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Data)
	// Output:
	// {"total":3} at sequence 1
	// {"total":3}
}

// A command that is sent again with the same ID has no second effect. Choose
// the ID yourself if your program may send the command again after a restart.
func ExampleClient_Send_idempotent() {
	address, stop := node()
	defer stop()
	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	cmd := client.Command{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":3}`), ID: "order-4711"}
	for range 2 {
		reply, err := c.Send(context.Background(), cmd)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s duplicate=%t\n", reply.Data, reply.Duplicate)
	}
	// Output:
	// {"total":3} duplicate=false
	// {"total":3} duplicate=true
}

// An entity rejects a command with a code of its own. Rejections are not
// retried.
func ExampleRejectedError() {
	address, stop := node()
	defer stop()
	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Send(context.Background(), client.Command{EntityType: "counter", EntityID: "visits", Name: "reject"})
	var rejected *client.RejectedError
	if errors.As(err, &rejected) {
		fmt.Println(rejected.Code, "-", rejected.Message)
	}
	// Output: insufficient_funds - the balance is too low
}

// A stream sends many commands without waiting for each reply. Commands to the
// same entity run in the order in which they are sent.
func ExampleClient_Stream() {
	address, stop := node()
	defer stop()
	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	s := c.Stream(client.StreamOptions{})
	for range 1000 {
		cmd := client.Command{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":1}`)}
		err := s.Send(ctx, cmd, func(_ client.Reply, err error) { // runs when the outcome is known
			if err != nil {
				log.Print(err)
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Close(ctx); err != nil { // waits for all outcomes
		log.Fatal(err)
	}
	answer, err := c.Query(ctx, client.Query{EntityType: "counter", EntityID: "visits", Name: "total"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Data)
	// Output: {"total":1000}
}

// A projection maintains a view of a type's events. If Apply stores the view and
// the cursor in one transaction, and the next run starts with the stored cursor,
// every event is applied exactly once.
func ExampleProjection() {
	address, stop := node()
	defer stop()
	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	var view struct {
		events int
		cursor string
	}
	for range 2 { // the second run continues after the first one
		for range 3 {
			cmd := client.Command{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":1}`)}
			if _, err := c.Send(ctx, cmd); err != nil {
				log.Fatal(err)
			}
		}
		p := client.Projection{
			Client:       c,
			Subscription: client.Subscription{EntityType: "counter", Cursor: view.cursor}, // Follow waits for more events
			Apply: func(_ context.Context, b client.Batch) error {
				view.events += len(b.Events)
				view.cursor = b.Cursor
				return nil
			},
		}
		if err := p.Run(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println(view.events, "events")
	}
	// Output:
	// 3 events
	// 6 events
}

// The history of one entity.
func ExampleClient_ReadEvents() {
	address, stop := node()
	defer stop()
	c, err := client.New([]string{address}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()

	for amount := range 3 {
		cmd := client.Command{EntityType: "counter", EntityID: "visits", Name: "add", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}
		if _, err := c.Send(ctx, cmd); err != nil {
			log.Fatal(err)
		}
	}
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: "counter", EntityID: "visits", From: 2}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s %s\n", e.Sequence, e.Type, e.Data)
	}
	// Output:
	// 2 added {"amount":1}
	// 3 added {"amount":2}
}
