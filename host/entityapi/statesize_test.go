package entityapi

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// folded returns the same state for all entities.
type folded struct {
	States
	state string
}

func (f folded) Replay(context.Context, sharding.EntityID, *journal.Sequence) (replay.ReplayedState, error) {
	return replay.ReplayedState{State: []byte(f.state), Sequence: 1}, nil
}

// jsonTypes are entity types that all have the encoding JSON.
type jsonTypes struct{}

func (jsonTypes) Encoding(context.Context, string) (request.Encoding, error) {
	return request.JSON, nil
}

func (fiveShards) ShardOf(sharding.EntityID) sharding.ShardID { return 1 }

// TestLargeStateIsReturnedAsBytes checks that a state is returned as bytes if a
// gRPC client would not accept its JSON value, which can have up to six times
// as many bytes as its text.
func TestLargeStateIsReturnedAsBytes(t *testing.T) {
	for text, asJSON := range map[string]bool{
		`{"a":1}`: true,
		"[" + strings.Repeat("1,", 200<<10) + "1]":       true,
		"[" + strings.Repeat("1,", 1<<19-10) + "1]":      false,
		`["` + strings.Repeat("x", 1<<20-100) + `"]`:     true,
		"no JSON " + strings.Repeat("x", 1<<20-100) + "": false,
	} {
		s := &handler{Options: Options{States: folded{state: text}, Types: jsonTypes{}, Entities: fiveShards{}, Proxy: leaderproxy.New(nil), Log: slog.New(slog.DiscardHandler)}}
		res, err := s.GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "note", EntityId: "a"}))
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(res.Msg); n > page.MaxAnswer+1024 || (res.Msg.GetJson() != nil) != asJSON || !asJSON && string(res.Msg.GetData()) != text {
			t.Errorf("%.10q of %d bytes: an answer of %d bytes, JSON %v", text, len(text), n, res.Msg.GetJson() != nil)
		}
	}
}
