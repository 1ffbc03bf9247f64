package audit

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// daemon is a syslog daemon: what it was sent is in a file.
type daemon struct {
	t       *testing.T
	socket  string
	conn    *net.UnixConn
	kept    string        // the file
	stopped chan struct{} // it reads no more
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "sys") // names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &daemon{t: t, socket: filepath.Join(dir, "log"), kept: filepath.Join(dir, "messages")}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.socket, Net: "unixgram"})
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := os.OpenFile(d.kept, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	d.conn, d.stopped = conn, make(chan struct{})
	go func(stopped chan struct{}) {
		defer close(stopped)
		defer f.Close()
		buf := make([]byte, 2*maxLine)
		for {
			n, err := conn.Read(buf)
			if err != nil || string(buf[:n]) == "end" {
				return
			}
			if _, err := fmt.Fprintf(f, "a header of the daemon: %s\nof another: nothing of an audit log\n", buf[:n]); err != nil {
				return
			}
		}
	}(d.stopped)
}

// stop ends the daemon when it has kept what it was sent.
func (d *daemon) stop() {
	if d.conn == nil {
		return
	}
	conn, err := d.dial()
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := conn.Write([]byte("end")); err != nil { // behind all that was sent
		d.t.Fatal(err)
	}
	_ = conn.Close()
	<-d.stopped
	_ = d.conn.Close()
	_ = os.Remove(d.socket)
	d.conn = nil
}

func (d *daemon) dial() (net.Conn, error) { return net.Dial("unixgram", d.socket) }

// lines are what the daemon has kept of a log.
func (d *daemon) lines() (out [][]byte) {
	d.t.Helper()
	text, err := os.ReadFile(d.kept)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if i := bytes.Index(line, []byte(lineBegins)); i >= 0 {
			out = append(out, line[i:])
		}
	}
	return out
}

func collectedLog(d *daemon, s *Signer) Options {
	return Options{Path: "syslog:" + d.socket, Collector: d.dial, Node: "n1", Signer: s}
}

// Lines go to a syslog daemon, each with its place in the chain, and are
// verified as it has kept them: a chain for each start, and no line missing.
func TestLinesGoToSyslog(t *testing.T) {
	d, s := newDaemon(t), newSigner(t)
	for range 3 {
		written(t, collectedLog(d, s), 4)
	}
	d.stop()
	r, err := VerifySyslog(d.kept, "", "", s.Public())
	if err != nil || r.Starts != 3 || r.Lines != 12+6 || r.Checkpoints != 6 || r.Unsigned != 0 || r.Others == 0 || r.Lost != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if again, err := VerifySyslog(d.kept, "n1", r.Head, s.Public()); err != nil || again.Lines != r.Lines {
		t.Errorf("%+v, %v", again, err)
	}
	text, err := os.ReadFile(d.kept)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^a header of the daemon: <86>[A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d hostd-audit\[\d+\]: \{"time":".*\}$`).Match(text) {
		t.Errorf("no line is as daemons expect it:\n%s", text)
	}
	lines := bytes.SplitAfter(text, []byte{'\n'})
	for name, changed := range map[string][][]byte{
		"a line is taken out":            append(append([][]byte{}, lines[:4]...), lines[6:]...),
		"a line is changed":              bytes.SplitAfter(bytes.Replace(text, []byte(`"id":"e1"`), []byte(`"id":"e2"`), 1), []byte{'\n'}),
		"a start is there again":         append(append([][]byte{}, lines...), lines[0]),
		"a line without its end":         bytes.SplitAfter(bytes.Replace(text, []byte(`"id":"e1"`), []byte("\n"), 1), []byte{'\n'}),
		"the first start is not all":     lines[2:],
		"all but what others have wrote": {[]byte("nothing of an audit log\n")},
	} {
		path := filepath.Join(t.TempDir(), "changed")
		if err := os.WriteFile(path, bytes.Join(changed, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		var fault *Fault
		r, err := VerifySyslog(path, "n1", "", s.Public())
		if name == "the first start is not all" { // the first lines may be gone
			if err != nil || r.From == "" || r.Starts != 2 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		} else if !errors.As(err, &fault) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// Lines of two nodes, and what else is collected, lie between each other.
	mixed, both := filepath.Join(t.TempDir(), "mixed"), []byte(nil)
	for _, line := range lines {
		both = append(append(both, line...), bytes.ReplaceAll(line, []byte(`"node":"n1"`), []byte(`"node":"n2"`))...)
		both = append(both, `x {"time":"now","level":"INFO","msg":"a log"}`+"\n"+strings.Repeat("y", 3*maxLine)+"\n"...)
	}
	if err := os.WriteFile(mixed, both, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := VerifySyslog(mixed, "n1", r.Head, s.Public()); err != nil || got.Lines != r.Lines {
		t.Errorf("of two nodes: %+v, %v", got, err)
	}
}

// While the daemon is gone changes are refused, other lines are lost and
// counted, and the chain goes on with the next that is taken.
func TestSyslogIsGoneAndBack(t *testing.T) {
	d, s := newDaemon(t), newSigner(t)
	l, stop := started(t, collectedLog(d, s))
	entry := Entry{Stage: StageComplete, Method: "/a.B/C", Code: "ok"}
	if err := l.Write(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	d.stop()
	for range 3 {
		if err := l.Write(t.Context(), entry); err == nil {
			t.Fatal("a line is taken by nobody")
		}
	}
	l.Add(entry)
	d.start()
	if err := l.Write(t.Context(), entry); err != nil {
		t.Fatalf("the daemon is back: %v", err)
	}
	// It is started anew between two lines: the second one is sent again.
	d.stop()
	d.start()
	if err := l.Write(t.Context(), entry); err != nil {
		t.Fatalf("the daemon was started anew: %v", err)
	}
	stop()
	d.stop()
	r, err := VerifySyslog(d.kept, "", "", s.Public())
	if err != nil || r.Starts != 1 || r.Lost != 4 || r.Lines != 3+r.Checkpoints {
		t.Errorf("%+v, %v", r, err)
	}
}

// A daemon that takes nothing holds no change up for long.
func TestSyslogThatTakesNothing(t *testing.T) {
	d, s := newDaemon(t), newSigner(t)
	deaf, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.socket + "2", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	o := collectedLog(d, s)
	o.Collector = func() (net.Conn, error) { return net.Dial("unixgram", d.socket+"2") }
	l, _ := started(t, o)
	large := Entry{Stage: StageComplete, Method: "/a.B/C", Target: strings.Repeat("x", maxText), Code: "ok"}
	for range 1 << 16 {
		if err := l.Write(t.Context(), large); err != nil {
			return
		}
	}
	t.Error("lines are taken without end by who reads none")
}

// A start is a checkpoint: who has no key makes none, and cannot put the lines
// behind a gap into a chain of their own.
func TestSyslogStartsAreSigned(t *testing.T) {
	d, s := newDaemon(t), newSigner(t)
	written(t, collectedLog(d, s), 6)
	d.stop()
	lines := d.lines()
	gap := relink(t, append([][]byte{lines[4]}, lines[5:]...), func(i int, l *line) {
		if i == 0 {
			l.Prev = ""
		}
	})
	path := filepath.Join(t.TempDir(), "changed")
	if err := os.WriteFile(path, append(bytes.Join(lines[:2], nil), gap...), 0o600); err != nil {
		t.Fatal(err)
	}
	var fault *Fault
	if r, err := VerifySyslog(path, "", "", ""); !errors.As(err, &fault) || fault.Line != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A node does not start without its daemon.
func TestSyslogMustBeThere(t *testing.T) {
	d, s := newDaemon(t), newSigner(t)
	d.stop()
	if _, err := Open(collectedLog(d, s)); err == nil {
		t.Error("a log is open to nobody")
	}
}
