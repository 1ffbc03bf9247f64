package abi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

func TestReaderReadsEveryVector(t *testing.T) {
	var all []byte
	want := vectors()
	for _, v := range want {
		all = append(all, v.bytes...)
	}
	reader := NewReader(all)
	for i := 0; ; i++ {
		frame, ok, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if i != len(want) {
				t.Fatalf("%d frames, want %d", i, len(want))
			}
			return
		}
		if again := AppendFrame(nil, frame.Kind, frame.Body); !bytes.Equal(again, want[i].bytes) {
			t.Errorf("%s: %x, want %x", want[i].name, again, want[i].bytes)
		}
	}
}

func TestReaderRejectsTruncatedFrames(t *testing.T) {
	whole := AppendEvent(AppendReply(nil, []byte("abc")), "added", []byte("x"))
	boundary := HeaderBytes + 3
	for n := range len(whole) {
		reader := NewReader(whole[:n])
		var err error
		for ok := true; ok && err == nil; {
			_, ok, err = reader.Next()
		}
		if n == 0 || n == boundary {
			if err != nil {
				t.Errorf("cut at frame boundary %d: %v", n, err)
			}
			continue
		}
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("cut at %d: %v, want ErrMalformed", n, err)
		}
		if _, _, again := reader.Next(); again == nil {
			t.Errorf("cut at %d: the fault went away", n)
		}
	}
}

func TestReaderRejectsLengthBeyondInput(t *testing.T) {
	for _, length := range []uint32{4, 1 << 31, 1<<32 - 1} {
		frame := binary.LittleEndian.AppendUint32([]byte{byte(OutReply)}, length)
		reader := NewReader(append(frame, 'a', 'b', 'c'))
		if _, ok, err := reader.Next(); ok || err == nil {
			t.Errorf("length %d was accepted", length)
		}
	}
}

func TestFrameBodyIsCappedAtItsEnd(t *testing.T) {
	frames := AppendReply(AppendReply(nil, []byte("one")), []byte("two"))
	reader := NewReader(frames)
	first, _, _ := reader.Next()
	_ = append(first.Body, 0xff)
	second, _, err := reader.Next()
	if err != nil || string(second.Body) != "two" {
		t.Fatalf("%q %v", second.Body, err)
	}
}

func TestBeginEndFrame(t *testing.T) {
	dst, mark := BeginFrame([]byte("before"), OutReply)
	dst = append(dst, "payload"...)
	EndFrame(dst, mark)
	if want := AppendReply([]byte("before"), []byte("payload")); !bytes.Equal(dst, want) {
		t.Errorf("%x, want %x", dst, want)
	}
}

func TestSpan(t *testing.T) {
	span := PackSpan(0xfffffff0, 16)
	if span.Address() != 0xfffffff0 || span.Length() != 16 {
		t.Fatalf("%x %d", span.Address(), span.Length())
	}
	for _, c := range []struct {
		memory uint64
		want   bool
	}{{1 << 32, true}, {1<<32 - 1, false}, {0, false}} {
		if got := span.Within(c.memory); got != c.want {
			t.Errorf("within %d: %v", c.memory, got)
		}
	}
	if !PackSpan(1<<31, 0).Within(0) {
		t.Error("an empty span must lie anywhere")
	}
}

func TestRequestRoundTrip(t *testing.T) {
	want := Request{
		EntityID: []byte("e1"), Snapshot: []byte("s"), Sequence: 9, Name: []byte("add"), Payload: []byte("{}"),
		CommandID: []byte("c1"), Now: -5, Seed: 1 << 63, Token: []byte{0, 7},
		Source: Source{Kind: SourceEntity, EntityType: []byte("t"), EntityID: []byte("i")},
	}
	var input []byte
	input = AppendEntityID(input, want.EntityID)
	input = AppendFrame(input, 200, "a later version's kind")
	input = AppendSnapshot(input, want.Snapshot)
	input = AppendSequence(input, want.Sequence)
	input = AppendName(input, want.Name)
	input = AppendPayload(input, want.Payload)
	input = AppendCommandID(input, want.CommandID)
	input = AppendNow(input, want.Now)
	input = AppendSeed(input, want.Seed)
	input = AppendSource(input, want.Source)
	input = AppendToken(input, want.Token)
	var got Request
	if err := ParseRequest(&got, input); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if err := ParseRequest(&got, nil); err != nil || !reflect.DeepEqual(got, Request{}) {
		t.Errorf("not reset: %+v %v", got, err)
	}
}

func TestRequestFaults(t *testing.T) {
	for name, input := range map[string][]byte{
		"short sequence":         AppendFrame(nil, InSequence, "1234567"),
		"long now":               AppendFrame(nil, InNow, "123456789"),
		"empty source":           AppendFrame(nil, InSource, ""),
		"unknown source":         AppendFrame(nil, InSource, "\x04"),
		"client with more bytes": AppendFrame(nil, InSource, "\x01x"),
		"entity without an id":   AppendFrame(nil, InSource, "\x03\x01\x00t"),
		"cut off":                {1, 2, 0},
	} {
		var frameError *FrameError
		if err := ParseRequest(new(Request), input); !errors.As(err, &frameError) || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInputEventRoundTrip(t *testing.T) {
	frame := AppendInputEvent(nil, 3, -7, "added", []byte("p"))
	if len(frame) != InputEventBytes(len("added"), 1) {
		t.Errorf("InputEventBytes is %d, frame is %d", InputEventBytes(5, 1), len(frame))
	}
	event, err := DecodeInputEvent(frame[HeaderBytes:])
	want := InputEvent{Sequence: 3, RecordedAt: -7, Type: []byte("added"), Payload: []byte("p")}
	if err != nil || !reflect.DeepEqual(event, want) {
		t.Errorf("%+v %v", event, err)
	}
	for n := range 16 + 2 + len("added") {
		if _, err := DecodeInputEvent(frame[HeaderBytes : HeaderBytes+n]); err == nil {
			t.Errorf("body of %d bytes was accepted", n)
		}
	}
}
