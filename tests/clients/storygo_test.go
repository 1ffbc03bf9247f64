package clients

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/clients/account"
)

var rewrite = flag.Bool("rewrite", false, "write the generated client in Go anew")

// storyInGo runs the story with the generated Go client.
func storyInGo(ctx context.Context, c config) (told []string, err error) {
	conn, err := client.New(c.Addresses, client.Options{Timeout: patience})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	following := make(chan string, 1)
	go func() { following <- followInGo(ctx, conn, c.ID) }()
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	amount := func(n account.Int64) account.AccountDepositPayload { return account.AccountDepositPayload{Amount: &n} }
	a := account.Account{Client: conn, ID: c.ID}

	opened, out, err := a.SendOpen(ctx, nil)
	if err != nil {
		return told, err
	}
	tell("open: balance %d, sequence %d, events %d, duplicate %v", opened.Balance, out.Sequence, out.EventCount, out.Duplicate)
	reply, out, err := a.SendDeposit(ctx, amount(100))
	if err != nil {
		return told, err
	}
	tell("deposit 100: balance %d, sequence %d", reply.Balance, out.Sequence)
	much, one := account.Int64(500), account.Int64(1)
	_, _, err = a.SendWithdraw(ctx, account.AccountWithdrawPayload{Amount: &much})
	tell("withdraw 500: %s", refusalInGo(err))
	_, _, err = a.SendDeposit(ctx, amount(0))
	tell("deposit 0: %s", refusalInGo(err))
	for range 2 {
		if reply, out, err = a.SendDeposit(ctx, amount(5), func(cmd *client.Command) { cmd.ID = c.ID + "-same" }); err != nil {
			return told, err
		}
		tell("deposit 5: balance %d, sequence %d, duplicate %v", reply.Balance, out.Sequence, out.Duplicate)
	}
	_, _, err = a.SendWithdraw(ctx, account.AccountWithdrawPayload{Amount: &one}, func(cmd *client.Command) { cmd.ExpectedSequence = new(uint64(1)) })
	tell("withdraw 1 at 1: %s", refusalInGo(err))
	_, _, err = a.SendDeposit(ctx, amount(1), func(cmd *client.Command) { cmd.Data = []byte(`{"amuont":1}`) })
	tell("deposit of what is misspelt: %s", refusalInGo(err))

	killing := make(chan error, 1)
	for i := range 20 {
		if i == 7 {
			go func() { killing <- killed(ctx, c) }()
		}
		if reply, out, err = a.SendDeposit(ctx, amount(1)); err != nil {
			return told, err
		}
	}
	if err := <-killing; err != nil {
		return told, err
	}
	tell("20 deposits: balance %d, sequence %d", reply.Balance, out.Sequence)
	balance, answer, err := a.QueryBalance(ctx, nil)
	if err != nil {
		return told, err
	}
	tell("query: balance %d, sequence %d", balance.Balance, answer.Sequence)
	state, err := stateInGo(ctx, conn, c)
	if err != nil {
		return told, err
	}
	tell("state: balance %d, open %v", state.Balance, state.Open)
	select {
	case line := <-following:
		told = append(told, line)
	case <-ctx.Done():
		return told, ctx.Err()
	}
	lines, err := viewInGo(ctx, conn, c)
	if told = append(told, lines...); err != nil {
		return told, err
	}
	line, err := newestInGo(ctx, conn, c, out.Sequence)
	return append(told, line), err
}

// viewInGo builds a view in two runs. The second run continues from the point
// at which the first run failed.
func viewInGo(ctx context.Context, conn *client.Client, c config) (told []string, err error) {
	cursor, events, deposited := "", 0, 0
	run := func(most, batches int) error {
		p := client.Projection{
			Client: conn, MaxEvents: most,
			Subscription: client.Subscription{EntityType: "account", Cursor: cursor, Shards: []uint32{c.Shard}, Upcast: true},
			Apply: func(_ context.Context, b client.Batch) error {
				if batches == 0 {
					return errors.New("enough")
				}
				batches--
				for _, e := range b.Events {
					if e.EntityID != c.ID {
						continue
					}
					events++
					var is struct{ Amount int }
					if e.Type == "deposited" && json.Unmarshal(e.Data, &is) == nil {
						deposited += is.Amount
					}
				}
				cursor = b.Cursor
				return nil
			},
		}
		return p.Run(ctx)
	}
	failed := run(4, 2)
	if failed == nil {
		return nil, errors.New("the view has not failed")
	}
	told = append(told, fmt.Sprintf("view: %v, all %v", failed, events == 23))
	err = run(5, -1)
	return append(told, fmt.Sprintf("view: %d events, deposited %d", events, deposited)), err
}

// newestInGo follows from the newest event while other events are written.
func newestInGo(ctx context.Context, conn *client.Client, c config, before uint64) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan uint64, 1)
	go func() {
		for d, err := range conn.Subscribe(ctx, client.Subscription{EntityType: "account", Follow: true, FromNewest: true}) {
			if err != nil || d.EntityID == c.ID {
				first <- d.Sequence
				return
			}
		}
	}()
	one := account.Int64(1)
	for {
		select {
		case sequence := <-first:
			return fmt.Sprintf("from newest: only later events %v", sequence > before), nil
		default:
		}
		if _, _, err := (account.Account{Client: conn, ID: c.ID}).SendDeposit(ctx, account.AccountDepositPayload{Amount: &one}); err != nil {
			return "", err
		}
	}
}

func refusalInGo(err error) string {
	var rejected *client.RejectedError
	var mismatch *client.SequenceMismatchError
	var other *client.Error
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &rejected):
		return "rejected " + rejected.Code
	case errors.As(err, &mismatch):
		return fmt.Sprintf("it is at %d", mismatch.Actual)
	case errors.As(err, &other):
		// The client includes the violations in the message.
		field, _, _ := strings.Cut(other.Message[strings.LastIndex(other.Message, "unknown member"):], ",")
		return other.Code.String() + " " + strings.Trim(strings.TrimPrefix(field, "unknown member "), `"`)
	}
	return err.Error()
}

func followInGo(ctx context.Context, c *client.Client, id string) string {
	n, sum, inOrder, first := 0, account.Int64(0), true, ""
	for d, err := range account.SubscribeAccount(ctx, c, client.Subscription{Follow: true}) {
		if err != nil {
			return "events: " + err.Error()
		}
		if d.EntityID != id {
			continue
		}
		if n++; n == 1 {
			first = d.Type
		}
		inOrder = inOrder && d.Sequence == uint64(n)
		if e, ok := d.Told.(account.AccountDeposited); ok {
			sum += e.Data.Amount
		}
		if d.Sequence >= 23 {
			break
		}
	}
	return fmt.Sprintf("events: %d, in order %v, the first %s, deposited %d", n, inOrder, first, sum)
}

// stateInGo requests the state from one node after another, because the client
// has no method for it.
func stateInGo(ctx context.Context, conn *client.Client, c config) (state account.AccountState, err error) {
	for _, address := range c.Addresses {
		nodes := entityv1connect.NewEntityServiceClient(conn.HTTPClient(), address)
		res, failed := nodes.GetState(ctx, connect.NewRequest(&entityv1.GetStateRequest{EntityType: "account", EntityId: c.ID}))
		if failed != nil {
			err = failed
			continue
		}
		text, err := protojson.Marshal(res.Msg.GetJson())
		if err != nil {
			return state, err
		}
		return state, json.Unmarshal(text, &state)
	}
	return state, err
}
