package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// leaderless rejects the first attempt and lets the deadline pass during the
// second.
type leaderless struct {
	entityv1connect.UnimplementedEntityServiceHandler
	asked  atomic.Int32
	second chan struct{} // closed by the second attempt
}

func (e *leaderless) answer(ctx context.Context) error {
	if e.asked.Add(1) == 1 {
		return connect.NewError(connect.CodeUnavailable, errors.New("shard 3 has no leader"))
	}
	close(e.second)
	<-ctx.Done()
	panic(http.ErrAbortHandler)
}

func (e *leaderless) SendCommand(ctx context.Context, _ *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	return nil, e.answer(ctx)
}

func (e *leaderless) QueryEntity(ctx context.Context, _ *connect.Request[entityv1.QueryEntityRequest]) (*connect.Response[entityv1.QueryEntityResponse], error) {
	return nil, e.answer(ctx)
}

// deadline is a context whose deadline passes when its channel is closed.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (d deadline) Done() <-chan struct{}       { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestDeadlineReportsLastAnswer checks that a call that ends with its deadline
// reports the previous answer of a node. For a query, that answer is the
// result. For a command, the outcome remains unknown, because the last
// attempt may have reached a node.
func TestDeadlineReportsLastAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		code connect.Code
		call func(context.Context, *client.Client) error
	}{
		{"query", connect.CodeUnavailable, func(ctx context.Context, c *client.Client) error {
			_, err := c.Query(ctx, client.Query{EntityType: "account", EntityID: "a", Name: "total"})
			return err
		}},
		{"command", connect.CodeDeadlineExceeded, func(ctx context.Context, c *client.Client) error {
			_, err := c.Send(ctx, client.Command{EntityType: "account", EntityID: "a", Name: "withdraw", ID: "w-1"})
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entities := &leaderless{second: make(chan struct{})}
			mux := http.NewServeMux()
			mux.Handle(entityv1connect.NewEntityServiceHandler(entities))
			server := httptest.NewUnstartedServer(mux)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			c, err := client.New([]string{server.Listener.Addr().String()}, client.Options{GivenOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := deadline{t.Context(), entities.second}
			err = tt.call(ctx, c)
			if client.CodeOf(err) != tt.code || !strings.Contains(err.Error(), "shard 3 has no leader") {
				t.Errorf("%v, want the code %s and the node's answer", err, tt.code)
			}
		})
	}
}
