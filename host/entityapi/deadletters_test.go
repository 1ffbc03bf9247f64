package entityapi

import (
	"context"
	"log/slog"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// graveyard has a number of dead letters of a size in each shard.
type graveyard struct {
	deadLetters
	each int
	size int
}

// fiveShards are Entities with five shards.
type fiveShards struct{ Entities }

func (fiveShards) Shards() uint32 { return 5 }

func (g graveyard) List(_ context.Context, _ sharding.ShardID, after journal.ItemID, limit, bytes int) (out []journal.DeadLetter, more bool, err error) {
	for i := int(after.Index) + 1; i <= g.each; i++ {
		if len(out) == limit || len(out) > 0 && bytes <= 0 {
			return out, true, nil
		}
		out = append(out, journal.DeadLetter{ID: journal.ItemID{Index: uint64(i)}, Payload: make([]byte, g.size)})
		bytes -= g.size
	}
	return out, false, nil
}

// TestDeadLetterPagesAreBoundedInBytes checks that a page of any requested size
// is small enough for a gRPC client, that every letter is listed once, and that
// no page is empty.
func TestDeadLetterPagesAreBoundedInBytes(t *testing.T) {
	const largest = 256 << 10
	for _, size := range []int{0, 1, 60 << 10, largest} {
		for _, asked := range []uint32{0, 1, 500} {
			if size == 0 && asked == 1 {
				continue
			}
			g := graveyard{each: 40, size: size}
			s := &handler{Options: Options{DeadLetters: g, Entities: fiveShards{}, Proxy: leaderproxy.New(nil), Log: slog.New(slog.DiscardHandler)}}
			seen, token := map[string]bool{}, ""
			for {
				res, err := s.ListDeadLetters(t.Context(), connect.NewRequest(&entityv1.ListDeadLettersRequest{PageSize: asked, PageToken: token}))
				if err != nil {
					t.Fatal(err)
				}
				if n := proto.Size(res.Msg); n > page.Bytes+largest+64<<10 || len(res.Msg.GetLetters()) == 0 {
					t.Fatalf("%d letters in %d bytes", len(res.Msg.GetLetters()), n)
				}
				for _, l := range res.Msg.GetLetters() {
					if seen[l.GetId()] {
						t.Fatalf("%s comes twice", l.GetId())
					}
					seen[l.GetId()] = true
				}
				if token = res.Msg.GetNextPageToken(); token == "" {
					break
				}
			}
			if len(seen) != 200 {
				t.Errorf("%d letters of %d bytes in pages of %d, want 200", len(seen), size, asked)
			}
		}
	}
}
