package abi

import (
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files under testdata")

type vector struct {
	name  string
	bytes []byte
}

// vectors returns one example of every frame kind. testdata/frames.txt is
// generated from it, for the tests of guests in other languages.
func vectors() []vector {
	return []vector{
		{"input entity id", AppendEntityID(nil, "räksmörgås-1")},
		{"input snapshot", AppendSnapshot(nil, []byte(`{"total":41}`))},
		{"input sequence", AppendSequence(nil, 0x0102030405060708)},
		{"input state version", AppendStateVersion(nil, 2)},
		{"input name", AppendName(nil, "add")},
		{"input payload", AppendPayload(nil, []byte(`{"amount":1}`))},
		{"input command id", AppendCommandID(nil, "c-1")},
		{"input now", AppendNow(nil, 1_700_000_000_123_456_789)},
		{"input now before 1970", AppendNow(nil, -1)},
		{"input seed", AppendSeed(nil, 0xfedcba9876543210)},
		{"input source client", AppendSource(nil, Source{Kind: SourceClient})},
		{"input source timer", AppendSource(nil, Source{Kind: SourceTimer})},
		{"input source entity", AppendSource(nil, Source{Kind: SourceEntity, EntityType: []byte("account"), EntityID: []byte("a1")})},
		{"input due", AppendDue(nil, 1_700_000_060_000_000_000)},
		{"input principal", AppendPrincipal(nil, "jwt", "bo", "staff", "auditors")},
		{"input principal anonymous", AppendPrincipal(nil, "anonymous", "")},
		{"input settings", AppendSettings(nil, AppendSetting(AppendSetting(nil, "currency", "EUR"), "limit", "räksmörgås"))},
		{"input token", AppendToken(nil, []byte{0, 1, 2, 0xff})},
		{"input event", AppendInputEvent(nil, 7, 1_700_000_000_000_000_000, "added", []byte(`{"amount":1}`))},
		{"output event", AppendEvent(nil, "added", []byte(`{"amount":1}`))},
		{"output event, empty payload", AppendEvent(nil, "reset", nil)},
		{"output reply", AppendReply(nil, []byte(`{"total":42}`))},
		{"output reject", AppendReject(nil, "insufficient_funds", "balance is 3")},
		{"output send", AppendSend(nil, Send{EntityType: []byte("account"), EntityID: []byte("a2"), Command: []byte("deposit"), Payload: []byte(`{"amount":5}`)})},
		{"output set timer", AppendSetTimer(nil, Timer{Name: []byte("close"), Due: 1_700_000_060_000_000_000, Command: []byte("close"), Payload: []byte("{}")})},
		{"output cancel timer", AppendCancelTimer(nil, "close")},
		{"output passivate", AppendPassivate(nil)},
		{"output tag", AppendTag(nil, "large")},
		{"output state", AppendState(nil, []byte(`{"total":42}`))},
		{"output delete", AppendDelete(nil)},
		{"output send with answer", AppendSend(nil, Send{EntityType: []byte("account"), EntityID: []byte("a2"), Command: []byte("deposit"), WantsAnswer: true, OnReply: []byte("paid"), OnReject: []byte("unpaid"), Payload: []byte(`{"amount":5}`)})},
		{"output send with token", AppendSend(nil, Send{EntityType: []byte("account"), EntityID: []byte("a2"), Command: []byte("deposit"), WantsAnswer: true, OnReply: []byte("paid"), OnReject: []byte("unpaid"), Token: []byte{0, 1, 2, 0xff}, Payload: []byte(`{"amount":5}`)})},
		{"output progress", AppendProgress(nil, Progress{Steps: 3, Waits: [][]byte{[]byte("wait approval"), []byte("sleep")}})},
		{"output set schedule", AppendSetSchedule(nil, Timer{Name: []byte("report"), Expression: []byte("0 3 * * mon-fri"), Zone: []byte("Europe/Berlin"), Missed: MissedAll, Command: []byte("report"), Payload: []byte("{}")})},
	}
}

func TestGoldenFrames(t *testing.T) {
	var text strings.Builder
	for _, v := range vectors() {
		text.WriteString(v.name + "\n  " + hex.EncodeToString(v.bytes) + "\n")
	}
	golden(t, "testdata/frames.txt", text.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -rewrite to accept\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
