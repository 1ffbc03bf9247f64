package entityapi

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

var recordedCounter = sharding.EntityID{Type: "counter", ID: "a"}

// recordShelf is the stored history of one entity, which may begin after its first
// event.
type recordShelf struct {
	records []journal.Record
	first   journal.Sequence
}

func (s *recordShelf) place(i int) journal.Position {
	return journal.Position{Index: 3 + uint64(i)/2, Ordinal: uint32(i) % 2}
}

func (s *recordShelf) Span(sharding.EntityID) (first, last journal.Sequence, err error) {
	if n := len(s.records); n > 0 {
		last = s.records[n-1].Last()
	}
	return max(1, s.first), last, nil
}

func (s *recordShelf) Records(_ context.Context, _ sharding.EntityID, from journal.Sequence, fn func(journal.Position, *journal.Record) error) error {
	if s.first > 1 && from < s.first {
		return &journal.TruncatedError{First: s.first}
	}
	for i := range s.records {
		if r := s.records[i]; r.Last() >= from && (s.first <= 1 || r.Last() >= s.first) {
			if err := fn(s.place(i), &r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *recordShelf) Action(r *journal.Record) (action, timer string) {
	if r.CommandID == "skip" {
		return "skip-timer", "dunning"
	}
	return "", ""
}

// add appends a record with the given number of events. Its command id is its
// number.
func (s *recordShelf) add(events int, change func(*journal.Record)) {
	_, last, _ := s.Span(recordedCounter)
	r := journal.Record{Entity: recordedCounter, Expected: last, RecordedAt: int64(len(s.records)), CommandID: journal.CommandID(fmt.Sprint(len(s.records)))}
	for range events {
		r.Events = append(r.Events, journal.Event{Type: "added", Payload: []byte(`{"amount":1}`), Tags: []string{"sum"}})
	}
	if change != nil {
		change(&r)
	}
	s.records = append(s.records, r)
}

func (s *recordShelf) service() *handler {
	return &handler{Options: Options{
		Types: oneShard{}, Entities: oneShard{}, Records: s, Proxy: leaderproxy.New(nil), Log: slog.New(slog.DiscardHandler),
	}}
}

// oneShard is a cluster of one shard whose types have JSON payloads.
type oneShard struct{ Entities }

func (oneShard) Encoding(context.Context, string) (request.Encoding, error) { return request.JSON, nil }
func (oneShard) ShardOf(sharding.EntityID) sharding.ShardID                 { return 1 }

func (s *recordShelf) read(t *testing.T, m *entityv1.ReadRecordsRequest) (*entityv1.ReadRecordsResponse, error) {
	t.Helper()
	m.EntityType, m.EntityId = recordedCounter.Type, recordedCounter.ID
	res, err := s.service().ReadRecords(t.Context(), connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// all reads all pages and returns the command ids of their records.
func (s *recordShelf) all(t *testing.T, m *entityv1.ReadRecordsRequest) (ids []string, pages int) {
	t.Helper()
	for {
		page, err := s.read(t, m)
		if err != nil {
			t.Fatal(err)
		}
		if most := max(int(m.GetPageSize()), 1); m.GetPageSize() > 0 && len(page.GetRecords()) > most {
			t.Fatalf("a page of %d has %d records", most, len(page.GetRecords()))
		}
		for _, r := range page.GetRecords() {
			ids = append(ids, r.GetCommandId())
		}
		if pages++; pages > 2*len(s.records)+2 {
			t.Fatal("the pages have no end")
		}
		if page.GetNextPageToken() == "" {
			return ids, pages
		}
		m.PageToken = page.GetNextPageToken()
	}
}

// TestRecordPagesHaveEachRecordOnce: in both directions and for every page size, pages
// contain every record once and in order, including records without events.
func TestRecordPagesHaveEachRecordOnce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := &recordShelf{}
		for range random.IntN(60) {
			events := 0
			if random.IntN(3) > 0 {
				events = random.IntN(9)
			}
			s.add(events, nil)
		}
		var want []string
		_, last, _ := s.Span(recordedCounter)
		if last > 0 && random.IntN(3) == 0 {
			s.first = s.records[random.IntN(len(s.records))].Expected + 1
		}
		for i := range s.records {
			if s.first <= 1 || s.records[i].Last() >= s.first {
				want = append(want, fmt.Sprint(i))
			}
		}
		size := uint32(1 + random.IntN(12))
		if got, _ := s.all(t, &entityv1.ReadRecordsRequest{PageSize: size}); !slices.Equal(got, want) {
			t.Fatalf("seed %d: pages of %d: %v, want %v", seed, size, got, want)
		}
		slices.Reverse(want)
		if got, _ := s.all(t, &entityv1.ReadRecordsRequest{PageSize: size, NewestFirst: true}); !slices.Equal(got, want) {
			t.Fatalf("seed %d: pages of %d, the newest first: %v, want %v", seed, size, got, want)
		}
	}
}

func TestRecordPageStartsAtRequestedSequence(t *testing.T) {
	s := &recordShelf{}
	for _, events := range []int{0, 1, 0, 3, 0, 2} { // sequences 1, 2 to 4, 5 to 6
		s.add(events, nil)
	}
	for _, c := range []struct {
		from   uint64
		newest bool
		want   string
	}{
		{0, false, "0 1 2 3 4 5"}, {1, false, "1 2 3 4 5"}, {3, false, "3 4 5"}, {6, false, "5"}, {7, false, ""},
		{0, true, "5 4 3 2 1 0"}, {6, true, "5 4 3 2 1 0"}, {4, true, "3 2 1 0"}, {1, true, "1 0"}, {99, true, "5 4 3 2 1 0"},
	} {
		got, _ := s.all(t, &entityv1.ReadRecordsRequest{FromSequence: c.from, NewestFirst: c.newest, PageSize: 2})
		if strings.Join(got, " ") != c.want {
			t.Errorf("from %d, the newest first %v: %v, want %s", c.from, c.newest, got, c.want)
		}
	}
	s.first = 5
	for _, m := range []*entityv1.ReadRecordsRequest{{FromSequence: 2}, {FromSequence: 2, NewestFirst: true}} {
		if _, err := s.read(t, m); connect.CodeOf(err) != connect.CodeOutOfRange {
			t.Errorf("what was cut: %v", err)
		}
	}
	page, err := s.read(t, &entityv1.ReadRecordsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"x", page.GetNextPageToken() + "A", "AAAA"} {
		if _, err := s.read(t, &entityv1.ReadRecordsRequest{PageToken: token}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// TestRecordPagesAreBounded: a page ends when its records reach the limit in bytes,
// and a larger record is shortened.
func TestRecordPagesAreBounded(t *testing.T) {
	s := &recordShelf{}
	fill := func(bytes int) func(*journal.Record) {
		return func(r *journal.Record) {
			r.Events[0].Payload = []byte(`"` + strings.Repeat("x", bytes) + `"`)
			r.Reply = []byte(`{"total":1}`)
		}
	}
	for range 40 {
		s.add(1, fill(longRecordBytes/2))
	}
	s.add(longRecordParts+5, fill(2*longRecordBytes))
	for _, newest := range []bool{false, true} {
		ids, pages := s.all(t, &entityv1.ReadRecordsRequest{PageSize: 500, NewestFirst: newest})
		if len(ids) != 41 || pages < 9 {
			t.Errorf("the newest first %v: %d records on %d pages", newest, len(ids), pages)
		}
		page, err := s.read(t, &entityv1.ReadRecordsRequest{PageSize: 500, NewestFirst: newest})
		if n := proto.Size(page); err != nil || n > 2*recordPageBytes {
			t.Errorf("the newest first %v: a page has %d bytes: %v", newest, n, err)
		}
	}
	page, err := s.read(t, &entityv1.ReadRecordsRequest{PageSize: 1, NewestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	r := page.GetRecords()[0]
	if !r.GetTruncated() || r.GetEventCount() != longRecordParts+5 || len(r.GetEvents()) != longRecordParts || r.GetReply() != nil || r.GetEvents()[0].GetPayload() != nil || r.GetEvents()[1].GetSequence() != 42 {
		t.Errorf("%v of %d events, a reply %v", r.GetTruncated(), len(r.GetEvents()), r.GetReply())
	}
	if page, err = s.read(t, &entityv1.ReadRecordsRequest{PageSize: 1}); err != nil || page.GetRecords()[0].GetTruncated() || page.GetRecords()[0].GetJson().GetStructValue() == nil {
		t.Errorf("%v, %v", page.GetRecords()[0].GetReply(), err)
	}
}

// TestRecordsShowSourceAndEffects: records show the source of a command, its effects
// and its cost.
func TestRecordsShowSourceAndEffects(t *testing.T) {
	section := func(kind journal.SectionKind, data []byte) func(*journal.Record) {
		return func(r *journal.Record) { r.Sections = append(r.Sections, journal.Section{Kind: kind, Data: data}) }
	}
	due := time.Unix(1_700_000_000, 0)
	s := &recordShelf{}
	s.add(1, section(journal.SectionFuel, binary.LittleEndian.AppendUint64(nil, 77)))
	s.add(0, section(journal.SectionSource, journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte("dunning"), Due: due.UnixNano()})))
	s.add(0, func(r *journal.Record) {
		section(journal.SectionSource, journal.AppendMessageSource(nil, &journal.MessageSource{Type: []byte("cart"), ID: []byte("c1"), Number: 4, Hops: 2}))(r)
		section(journal.SectionRefusal, journal.AppendRefusal(nil, &journal.Refusal{Code: []byte("closed"), Message: []byte("it is"), Command: []byte("put")}))(r)
	})
	s.add(0, section(journal.SectionSource, journal.AppendDeadLetterSource(nil, journal.ItemID{Index: 9})))
	s.add(0, func(r *journal.Record) { r.CommandID = "skip" })
	s.add(1, func(r *journal.Record) {
		r.Flags = journal.FlagTombstone
		ops := journal.AppendTimerOp(nil, journal.TimerOp{Name: []byte("once"), Due: due.UnixNano(), Command: []byte("wake")})
		ops = journal.AppendTimerOp(ops, journal.TimerOp{Name: []byte("again"), Due: due.UnixNano(), Command: []byte("tick")})
		ops = journal.AppendTimerOp(ops, journal.TimerOp{Name: []byte("off"), Cancel: true})
		section(journal.SectionTimers, ops)(r)
		sent := journal.AppendMessageOp(nil, &journal.MessageOp{Type: []byte("orders"), ID: []byte("o1"), Command: []byte("place"), OnReply: []byte("placed"), OnReject: []byte("not"), Payload: []byte("{}")})
		section(journal.SectionMessages, journal.AppendMessageOp(sent, &journal.MessageOp{Type: []byte("mail"), ID: []byte("m"), Command: []byte("send")}))(r)
		section(journal.SectionSchedules, journal.AppendScheduleOp(nil, &journal.ScheduleOp{Op: 1, Schedule: journal.Schedule{Expression: []byte("@every 1s")}}))(r)
	})
	page, err := s.read(t, &entityv1.ReadRecordsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got := page.GetRecords()
	if r := got[0]; r.GetFuel() != 77 || r.GetSource().GetKind() != fromClient || r.GetEvents()[0].GetTags()[0] != "sum" || r.GetEvents()[0].GetJson().GetStructValue() == nil || r.GetDeleted() {
		t.Errorf("a command of a client: %v", r)
	}
	if from := got[1].GetSource(); from.GetKind() != fromTimer || from.GetTimer() != "dunning" || !from.GetDue().AsTime().Equal(due) {
		t.Errorf("a timer: %v", from)
	}
	if from := got[2].GetSource(); from.GetKind() != fromEntity || from.GetEntityType() != "cart" || from.GetEntityId() != "c1" || from.GetNumber() != 4 || from.GetHops() != 2 || got[2].GetRejection().GetCode() != "closed" || got[2].GetRejection().GetCommand() != "put" {
		t.Errorf("a send: %v", got[2])
	}
	if from := got[3].GetSource(); from.GetKind() != fromDeadLetter {
		t.Errorf("a dead letter: %v", from)
	}
	if from := got[4].GetSource(); from.GetKind() != fromOperator || from.GetAction() != "skip-timer" || from.GetTimer() != "dunning" {
		t.Errorf("an operator: %v", from)
	}
	r := got[5]
	if timers := r.GetTimers(); len(timers) != 3 || timers[0].GetTimer().GetCommand() != "wake" || timers[0].GetTimer().GetSchedule() != "" || timers[1].GetTimer().GetSchedule() != "@every 1s" ||
		!timers[2].GetCancelled() || timers[2].GetTimer().GetName() != "off" || timers[2].GetTimer().GetDue() != nil {
		t.Errorf("timers: %v", timers)
	}
	if sends := r.GetMessages(); len(sends) != 2 || sends[0].GetEntityType() != "orders" || sends[0].GetOnReply() != "placed" || string(sends[0].GetData()) != "{}" || sends[1].GetCommand() != "send" {
		t.Errorf("sends: %v", sends)
	}
	if !r.GetDeleted() {
		t.Error("the deletion of the entity is not shown")
	}
}
