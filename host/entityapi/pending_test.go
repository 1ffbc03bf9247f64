package entityapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// pendingShelf has the timers and sends of some shards.
type pendingShelf struct {
	timers map[sharding.ShardID][]journal.Timer // timers of each shard in the order of their due times
	sends  map[sharding.ShardID][]journal.Message
	broken sharding.ShardID // a shard that cannot be read
}

func (s *pendingShelf) Timers(_ context.Context, shard sharding.ShardID, q timerQuery) (p timerPage, err error) {
	if shard == s.broken {
		return p, errors.New("it has stopped")
	}
	for i := range s.timers[shard] {
		t := s.timers[shard][i]
		at := timerPlaceOf(&t)
		if q.After != nil && !q.After.Before(at) || t.Due > q.By {
			continue
		}
		if len(p.Timers) == q.Limit {
			p.More = true
			break
		}
		p.Last = at
		if q.Type == "" || q.Type == t.Entity.Type {
			p.Timers = append(p.Timers, t)
		}
	}
	return p, nil
}

func (s *pendingShelf) Place(t *journal.Timer) timerPlace { return timerPlaceOf(t) }

func timerPlaceOf(t *journal.Timer) timerPlace {
	return timerPlace{t.Due, t.Entity.String() + " " + t.Name}
}

func (s *pendingShelf) Sends(_ context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	for i := range s.sends[shard] {
		if m := s.sends[shard][i]; after.Less(m.ID) {
			if err := fn(&m); err != nil {
				return err
			}
		}
	}
	return nil
}

const pendingShards = 70

func (s *pendingShelf) service() *handler {
	return &handler{Options: Options{
		Self: "n1", Pending: s, Entities: pendingCluster{}, Types: pendingCluster{}, Proxy: leaderproxy.New(nil), Log: slog.New(slog.DiscardHandler),
	}}
}

// pendingCluster knows every type except "nothing".
type pendingCluster struct{ Entities }

func (pendingCluster) Shards() uint32 { return pendingShards }

func (pendingCluster) ShardOf(id sharding.EntityID) sharding.ShardID {
	return sharding.ShardOf(id, pendingShards)
}

func (pendingCluster) Encoding(_ context.Context, entityType string) (request.Encoding, error) {
	if entityType == "nothing" {
		return request.JSON, request.ErrUnknownType
	}
	return request.JSON, nil
}

// TestListTimersIsOrderedByDueTime: pages contain the timers of all shards, each once,
// in the order of their due times.
func TestListTimersIsOrderedByDueTime(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := &pendingShelf{timers: map[sharding.ShardID][]journal.Timer{}}
		m := &entityv1.ListTimersRequest{PageSize: uint32(1 + random.IntN(9))}
		by := int64(1 << 40)
		if random.IntN(2) == 0 {
			by = int64(random.IntN(20))
			m.DueBy = timestamppb.New(time.Unix(0, by))
		}
		if random.IntN(2) == 0 {
			m.EntityType = "cart"
		}
		var all []journal.Timer
		for i := range random.IntN(80) {
			timer := journal.Timer{Entity: sharding.EntityID{Type: []string{"cart", "order"}[random.IntN(2)], ID: fmt.Sprint(i)}, Name: "t", Due: int64(random.IntN(20)), Command: []byte("wake")}
			shard := sharding.ShardOf(timer.Entity, pendingShards)
			s.timers[shard] = append(s.timers[shard], timer)
			if timer.Due <= by && (m.EntityType == "" || m.EntityType == timer.Entity.Type) {
				all = append(all, timer)
			}
		}
		order := func(a, b journal.Timer) int {
			if timerPlaceOf(&a).Before(timerPlaceOf(&b)) {
				return -1
			}
			return 1
		}
		for _, of := range s.timers {
			slices.SortFunc(of, order)
		}
		slices.SortFunc(all, order)
		var want, got []string
		for _, timer := range all {
			want = append(want, fmt.Sprintf("%d %s", timer.Due, timer.Entity))
		}
		for n := 0; ; n++ {
			res, err := s.service().ListTimers(t.Context(), connect.NewRequest(m))
			if err != nil || n > 200 || len(res.Msg.GetTimers()) > int(m.GetPageSize()) || res.Msg.GetShardsRead() != pendingShards || res.Msg.GetShardCount() != pendingShards {
				t.Fatalf("seed %d, page %d: %v, %v", seed, n, res, err)
			}
			for _, timer := range res.Msg.GetTimers() {
				id := sharding.EntityID{Type: timer.GetEntityType(), ID: timer.GetEntityId()}
				if timer.GetShardId() != uint32(sharding.ShardOf(id, pendingShards)) || timer.GetTimer().GetCommand() != "wake" {
					t.Fatalf("seed %d: %v", seed, timer)
				}
				got = append(got, fmt.Sprintf("%d %s", timer.GetTimer().GetDue().AsTime().UnixNano(), id))
			}
			if m.PageToken = res.Msg.GetNextPageToken(); m.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n%v, want\n%v", seed, got, want)
		}
	}
}

// TestPartsAreMergedUpToTheNearestEnd checks that timers after the end of one
// part are left out, because other timers may come before them.
func TestPartsAreMergedUpToTheNearestEnd(t *testing.T) {
	of := func(end int64, dues ...int64) (p timerPart) {
		for _, due := range dues {
			p.timers = append(p.timers, placedTimer{at: timerPlace{Due: due, Key: "k"}})
		}
		if end > 0 {
			p.end = &timerPlace{Due: end, Key: "k"}
		}
		return p
	}
	text := func(p timerPart) (out string) {
		for _, t := range p.timers {
			out += fmt.Sprint(t.at.Due, " ")
		}
		if p.end != nil {
			out += fmt.Sprint("to ", p.end.Due)
		}
		return strings.TrimSpace(out)
	}
	for _, c := range []struct {
		one, two timerPart
		size     int
		want     string
	}{
		{of(0, 1, 3), of(0, 2), 9, "1 2 3"},
		{of(0, 1, 3), of(0, 2, 3), 9, "1 2 3"}, // both nodes return timer 3
		{of(0, 1, 3, 5), of(2, 2), 9, "1 2 to 2"},
		{of(4, 1, 4), of(3, 2, 3), 9, "1 2 3 to 3"},
		{of(0, 1, 2, 3), of(0, 4), 2, "1 2 to 2"},
		{of(0, 1, 2, 3), of(1), 2, "1 to 1"}, // the second part examined many timers and none matched
		{of(0, 1, 2), of(0), 2, "1 2"},
	} {
		if c.one.merge(c.two, c.size); text(c.one) != c.want {
			t.Errorf("%s, want %s", text(c.one), c.want)
		}
	}
}

func TestInvalidListingRequestIsRejected(t *testing.T) {
	s := &pendingShelf{timers: map[sharding.ShardID][]journal.Timer{1: {{Entity: sharding.EntityID{Type: "cart", ID: "a"}, Name: "t"}, {Entity: sharding.EntityID{Type: "cart", ID: "b"}, Name: "t"}}}, broken: 2}
	list := func(m *entityv1.ListTimersRequest) (*entityv1.ListTimersResponse, error) {
		res, err := s.service().ListTimers(t.Context(), connect.NewRequest(m))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	page, err := list(&entityv1.ListTimersRequest{PageSize: 1})
	if err != nil || page.GetNextPageToken() == "" || page.GetShardsRead() != pendingShards-1 {
		t.Fatalf("a shard that cannot be read: %v, %v", page, err)
	}
	for _, m := range []*entityv1.ListTimersRequest{
		{PageToken: "x"}, {PageToken: "AAAA"}, {PageToken: page.GetNextPageToken(), EntityType: "cart"}, {PageToken: page.GetNextPageToken(), DueBy: timestamppb.Now()},
	} {
		if _, err := list(m); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
	if _, err := list(&entityv1.ListTimersRequest{EntityType: "nothing"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a type that is not there: %v", err)
	}
	for _, m := range []*entityv1.ListMessagesRequest{{PageToken: "1-2"}, {PageToken: "71-0-0-0"}, {PageToken: "01-0-0-0"}, {EntityId: "a"}} {
		if _, err := s.service().ListMessages(t.Context(), connect.NewRequest(m)); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// TestListSendsIsInSendOrder: pages contain the sends of all shards, of a type or
// of an entity, each once, in the order in which they were sent.
func TestListSendsIsInSendOrder(t *testing.T) {
	s := &pendingShelf{sends: map[sharding.ShardID][]journal.Message{}}
	want := map[string][]string{}
	for i := range 200 {
		source := sharding.EntityID{Type: []string{"cart", "order"}[i%2], ID: fmt.Sprint(i % 7)}
		shard := sharding.ShardOf(source, pendingShards)
		s.sends[shard] = append(s.sends[shard], journal.Message{ID: journal.ItemID{Index: uint64(i) + 1}, Source: source, Destination: sharding.EntityID{Type: "sink", ID: "x"}, Number: uint64(i), Command: "put", Payload: make([]byte, shownMessageBytes+i)})
	}
	for shard := sharding.ShardID(1); shard <= pendingShards; shard++ {
		for _, m := range s.sends[shard] {
			for _, of := range []string{"/", m.Source.Type + "/", m.Source.String()} {
				want[of] = append(want[of], fmt.Sprint(m.Number))
			}
		}
	}
	for of, numbers := range want {
		entityType, id, _ := strings.Cut(of, "/")
		m := &entityv1.ListMessagesRequest{EntityType: entityType, EntityId: id, PageSize: 7}
		var got []string
		for n := 0; ; n++ {
			res, err := s.service().ListMessages(t.Context(), connect.NewRequest(m))
			if err != nil || n > 100 || len(res.Msg.GetMessages()) > 7 {
				t.Fatalf("%s, page %d: %v, %v", of, n, res, err)
			}
			for _, sent := range res.Msg.GetMessages() {
				if len(sent.GetData()) != shownMessageBytes || sent.GetCommand() != "put" || sent.GetEntityType() != "sink" || entityType != "" && sent.GetSourceType() != entityType {
					t.Fatalf("%s: %v", of, sent)
				}
				got = append(got, fmt.Sprint(sent.GetNumber()))
			}
			if m.PageToken = res.Msg.GetNextPageToken(); m.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("%s: %v, want %v", of, got, numbers)
		}
	}
}

// TestUnservedTimersAreCounted checks that timers are counted by command over
// all pages, that only a few are named, and that the result says if some
// timers were not examined.
func TestUnservedTimersAreCounted(t *testing.T) {
	s := &pendingShelf{timers: map[sharding.ShardID][]journal.Timer{}}
	fill := func(entityType string, timers int) {
		for i := range timers {
			timer := journal.Timer{Entity: sharding.EntityID{Type: entityType, ID: fmt.Sprintf("%06d", i)}, Name: "t", Due: int64(i), Command: []byte([]string{"wake", "close", "expire"}[i%3])}
			shard := sharding.ShardOf(timer.Entity, pendingShards)
			s.timers[shard] = append(s.timers[shard], timer)
		}
	}
	fill("cart", 2*unservedPage)
	fill("order", 7)
	serves := func(command string) bool { return command == "wake" }
	got, err := s.service().FindUnserved(t.Context(), "order", serves)
	if err != nil || got.Timers != 4 || got.Commands["close"] != 2 || got.Commands["expire"] != 2 || len(got.First) != unservedShown || got.First[0].GetEntityId() != "000001" || got.Partial {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.service().FindUnserved(t.Context(), "cart", serves); err != nil || got.Timers != 666 || got.Partial {
		t.Errorf("over pages: %d timers, partial %v, %v", got.Timers, got.Partial, err)
	}
	if got, err := s.service().FindUnserved(t.Context(), "cart", func(string) bool { return true }); err != nil || got.Timers != 0 || len(got.First) != 0 {
		t.Errorf("with all commands: %+v, %v", got, err)
	}
	s.timers = map[sharding.ShardID][]journal.Timer{}
	fill("many", unservedPage*unservedPages+1)
	if got, err := s.service().FindUnserved(t.Context(), "many", serves); err != nil || !got.Partial {
		t.Errorf("over the bound: %d timers, partial %v, %v", got.Timers, got.Partial, err)
	}
	s.broken = 1
	if got, err := s.service().FindUnserved(t.Context(), "order", serves); err != nil || !got.Partial {
		t.Errorf("with a shard that cannot be read: %+v, %v", got, err)
	}
}
