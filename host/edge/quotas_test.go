package edge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding/access"
)

// allot gives a caller quotas, and the right to send.
func (g *guarded) allot(t *testing.T, name string, q access.Quotas) {
	t.Helper()
	if _, err := g.world.Kept.PutRole(t.Context(), access.Role{Name: name, Quotas: q}); err != nil {
		t.Fatal(err)
	}
	g.bind(t, "token:"+name, name, "invoker")
}

// overQuota reports whether an error names the quota.
func overQuota(err error, which access.Quota) bool {
	refused, ok := errors.AsType[*connect.Error](err)
	return ok && refused.Code() == connect.CodeResourceExhausted && strings.Contains(refused.Message(), "exceeded its quota "+which.String()+"=") && len(refused.Details()) == 1
}

// TestPerSecondQuotas: while the clock is stopped, calls and each command of a
// stream are admitted up to the caller's quota of one second.
func TestPerSecondQuotas(t *testing.T) {
	payload, reply := int64(len(add("x", 1).GetData())), int64(len(`{"total":1}`))
	for _, tt := range []struct {
		which access.Quota
		q     access.Quotas
		most  int // admitted commands; the cost of a command is known only when it has ended
	}{
		{access.CommandsPerSecond, access.Quotas{CommandsPerSecond: 6}, 6},
		{access.FuelPerSecond, access.Quotas{FuelPerSecond: 5001}, 6},
		{access.BytesPerSecond, access.Quotas{BytesPerSecond: 5*(payload+reply) + 1}, 6},
	} {
		g := guard(t, edge.Options{}, "root", "ann")
		g.world.CommandFuel = 1000
		g.begin(t)
		g.allot(t, "ann", tt.q)
		send := func() error {
			_, err := g.entitiesAs("ann").SendCommand(t.Context(), connect.NewRequest(add("x", 1)))
			return err
		}
		// Half of the commands are calls and half are sent on a stream. They
		// are sent one after the other, because each is charged when it is
		// answered.
		for i := range tt.most / 2 {
			if err := send(); err != nil {
				t.Fatalf("%s: call %d: %v", tt.which, i, err)
			}
		}
		stream := g.entitiesAs("ann").SendCommandStream(t.Context())
		for i := range uint64(tt.most / 2) {
			if err := stream.Send(message(i, add("x", 1))); err != nil {
				t.Fatal(err)
			}
			if a := collect(t, stream, 1)[0]; a.GetError() != nil {
				t.Errorf("%s: command %d of a stream: %v", tt.which, i, a.GetError())
			}
		}
		if err := send(); !overQuota(err, tt.which) {
			t.Errorf("%s: one call more: %v", tt.which, err)
		}
		if err := stream.Send(message(90, add("x", 1), add("y", 1))); err != nil {
			t.Fatal(err)
		}
		for _, a := range collect(t, stream, 2) {
			if e := a.GetError(); e.GetCode() != "resource_exhausted" || !strings.Contains(e.GetMessage(), tt.which.String()) || len(e.GetDetails()) != 1 {
				t.Errorf("%s: one command of a stream more: %v", tt.which, a)
			}
		}
		if _, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add("z", 1))); err != nil {
			t.Errorf("%s: who is admin: %v", tt.which, err)
		}
		g.time.Add(int64(time.Second))
		if err := send(); err != nil {
			t.Errorf("%s: after a second: %v", tt.which, err)
		}
		stream.CloseRequest()
		collect(t, stream, 0)
		stream.CloseResponse()
	}
}

// TestEndedStreamsDoNotCountForQuota: a caller at its quota of streams may
// open another stream when one has ended.
func TestEndedStreamsDoNotCountForQuota(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann")
	g.begin(t)
	g.allot(t, "ann", access.Quotas{Streams: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func() (*sendStream, error) {
		stream := g.entitiesAs("ann").SendCommandStream(ctx)
		if err := stream.Send(message(1, add("x", 1))); err != nil && !strings.Contains(err.Error(), "EOF") {
			return nil, err
		}
		_, err := stream.Receive()
		if err != nil {
			stream.CloseRequest()
			stream.CloseResponse()
		}
		return stream, err
	}
	end := func(stream *sendStream) {
		stream.CloseRequest()
		collect(t, stream, 0)
		stream.CloseResponse()
	}
	stays, err := open()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(); !overQuota(err, access.OpenStreams) {
			t.Errorf("the third of two: %v", err)
		}
		end(stream)
	}
	end(stays)
}
