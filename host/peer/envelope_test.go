package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// The length of a message is checked before memory for it is allocated.
func TestEnvelopeBoundsMessages(t *testing.T) {
	envelope := func(flags byte, size uint32, message string) *bufio.Reader {
		return bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32([]byte{flags}, size), message...)))
	}
	for name, c := range map[string]struct {
		in   *bufio.Reader
		want error
	}{
		"at the limit":    {envelope(0, 4, "abcd"), nil},
		"over the limit":  {envelope(0, 5, "abcde"), errMalformed},
		"huge":            {envelope(0, 1<<32-1, ""), errMalformed},
		"compressed":      {envelope(1, 4, "abcd"), errMalformed},
		"end of a stream": {envelope(2, 2, "{}"), errMalformed},
		"cut message":     {envelope(0, 4, "abc"), io.ErrUnexpectedEOF},
		"cut envelope":    {bufio.NewReader(bytes.NewReader([]byte{0, 0})), io.EOF},
		"empty":           {envelope(0, 0, ""), nil},
	} {
		if _, err := readEnvelope(c.in, 4); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), maxMessageBytes/16)
	if data, err := readEnvelope(envelope(0, uint32(len(long)), string(long)), maxMessageBytes); err != nil || !bytes.Equal(data, long) {
		t.Errorf("a message of %d bytes: %d bytes, %v", len(long), len(data), err)
	}
	want := &batch{frames: [][]byte{[]byte("abc"), []byte("d")}, heartbeat: 7, turns: 9}
	data, err := readEnvelope(bufio.NewReader(bytes.NewReader(appendEnvelope(nil, want))), maxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	var got batch
	if err := got.parse(data); err != nil || len(got.frames) != 2 || string(got.frames[0]) != "abc" || got.heartbeat != 7 || got.turns != 9 {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
