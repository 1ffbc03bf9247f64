package membership

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// header returns the header of a full state exchange, as memberlist encodes it.
func header(nodes, state string) string {
	return "\x06\x83\xa4Join\xc2\xa5Nodes" + nodes + "\xacUserStateLen" + state
}

const million = "\xce\x00\x10\x00\x00"

// Streams that would make memberlist allocate without limit are rejected. Other
// streams pass unchanged.
func TestOversizedStreamsAreRejected(t *testing.T) {
	label := "\xf4\x04test"
	for name, c := range map[string]struct {
		sent    string
		accepts bool
	}{
		"nodes":                {header("\x03", "\x00") + "three of them", true},
		"labelled":             {label + header("\x03", "\x00") + "three of them", true},
		"many nodes":           {header("\xcd\x10\x00", "\x00"), true},
		"more nodes":           {header("\xcd\x10\x01", "\x00"), false},
		"a million nodes":      {header(million, "\x00"), false},
		"labelled million":     {label + header(million, "\x00"), false},
		"nodes, 64 bits":       {header("\xcf\x00\x00\x00\x00\x00\x10\x00\x00", "\x00"), false},
		"negative":             {header("\xff", "\x00"), false},
		"negative, 64 bits":    {header("\xd3\xff\xff\xff\xff\xff\xff\xff\xff", "\x00"), false},
		"state":                {header("\x03", "\x01"), false},
		"twice":                {"\x06\x82\xa5Nodes\x01\xa5Nodes" + million, false},
		"no map":               {"\x06\x93\x01\x02\x03", false},
		"a large map":          {"\x06\xdf\xff\xff\xff\xff", false},
		"a long name":          {"\x06\x81\xdb\xff\xff\xff\xff", false},
		"a text":               {"\x06\x81\xa5Nodes\xa1x", false},
		"cut short":            {"\x06\x83\xa4Join\xc2\xa5Nodes", false},
		"ping":                 {"\x00\x82", true},
		"ack":                  {"\x02\x82", true},
		"error":                {"\x0d\x81", true},
		"encrypted":            {label + "\x0a\x00\x00\x00\x10", true},
		"user message":         {"\x08\x81\xaaUserMsgLen\xce\x01\x40\x00\x00", false},
		"compressed":           {"\x09\x82", false},
		"compound":             {"\x07\x01", false},
		"label of a label":     {label + label + header("\x03", "\x00"), false},
		"nothing":              {"", false},
		"nothing but a label":  {label, false},
		"a label without text": {"\xf4", false},
	} {
		ours, theirs := net.Pipe()
		go func() { io.WriteString(theirs, c.sent); theirs.Close() }()
		conn, err := guard(ours)
		if (err == nil) != c.accepts || err != nil && !errors.Is(err, errUnwanted) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if got, err := io.ReadAll(conn); string(got) != c.sent || err != nil {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
		ours.Close()
	}
}

// The bytes read from a stream are limited.
func TestStreamReadsAreLimited(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		io.WriteString(theirs, "\x0a"+strings.Repeat("x", maxStreamBytes))
		theirs.Close()
	}()
	conn, err := guard(ours)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, conn); n != maxStreamBytes || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Compressed messages are rejected, however they are wrapped.
func TestCompressedPacketsAreRejected(t *testing.T) {
	checked, label := "\x0c....", "\xf4\x04test"
	compound := func(messages ...string) string {
		lengths, all := "", ""
		for _, m := range messages {
			lengths += string([]byte{0, byte(len(m))})
			all += m
		}
		return "\x07" + string([]byte{byte(len(messages))}) + lengths + all
	}
	for packet, accepts := range map[string]bool{
		"\x00ping": true, checked + "\x00ping": true, label + checked + "\x04alive": true, "\x0bnack": true,
		compound("\x00ping", "\x04alive", "\x05dead"): true, label + checked + compound("\x00ping"): true, compound(): true,
		"\x09compressed": false, label + "\x09compressed": false, checked + "\x09compressed": false, checked + checked + "\x09": false,
		compound("\x00ping", "\x09compressed"): false, compound(compound("\x09")): false, compound(checked + "\x09"): false, compound(label + "\x09"): false,
		"\x08user": false, "\x06nodes": false, "\x0aencrypted": false, "\x07": false, "\x07\x02\x00": false, "\x07\x01\x00\x09ping": false, "": false, "\xf4": false, "\xf4\xff": false,
	} {
		if acceptsPacket([]byte(packet)) != accepts {
			t.Errorf("%q: %v", packet, !accepts)
		}
	}
}

// Idle streams do not block packets, and closing streams makes room for new
// streams.
func TestConcurrentStreamsAreLimited(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := l.Addr().(*net.TCPAddr)
	tr := newTransport(tcpPort{l}, slog.New(slog.DiscardHandler), a.IP, a.Port, false)
	defer tr.Shutdown()
	open := func() net.Conn {
		conn, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte{kindStream})
		return conn
	}
	var held []net.Conn
	for range maxStreams {
		held = append(held, open())
	}
	streams := func() int { tr.mu.Lock(); defer tr.mu.Unlock(); return tr.inStreams }
	for streams() < maxStreams {
		time.Sleep(time.Millisecond)
	}
	more := open()
	if _, err := more.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, net.ErrClosed) && err == nil {
		t.Errorf("one more: %v", err)
	}
	held[0].Close()
	for streams() == maxStreams {
		time.Sleep(time.Millisecond)
	}
	last := open()
	io.WriteString(last, "\x00ping")
	select {
	case conn := <-tr.StreamCh():
		conn.Close()
	case <-time.After(10 * time.Second):
		t.Error("no room was made")
	}
	for _, conn := range append(held, more, last) {
		conn.Close()
	}
}
