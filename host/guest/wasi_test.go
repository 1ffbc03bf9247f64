package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// probe is a guest that calls one imported function in handle, query and apply,
// stores its error number and returns 256 bytes of scratch memory.
func probe(name string, arguments ...[]byte) *testGuest {
	guest := (&testGuest{data: [][]byte{cat([]byte{0}, i32c(scratchAt), []byte{opEnd}, text(strings.Repeat("\xaa", 256)))}}).
		importing(abi.ImportWASI, name)
	code := cat(i32c(scratchAt+256), cat(arguments...), call(0), op(0x36, aligned(2)))
	guest.bodies = map[string][]byte{
		abi.ExportHandle:   cat(code, spanc(scratchAt, 260)),
		abi.ExportApply:    cat(code, i32c(0)),
		abi.ExportQuery:    spanc(scratchAt, 260),
		abi.ExportSnapshot: spanc(scratchAt, 260),
	}
	return guest
}

type probed struct {
	scratch []byte
	errno   uint32
}

func split(t *testing.T, out []byte, err error) probed {
	t.Helper()
	if err != nil || len(out) != 260 {
		t.Fatalf("%d bytes, %v", len(out), err)
	}
	return probed{bytes.Clone(out[:256]), binary.LittleEndian.Uint32(out[256:])}
}

func TestSystemFunctionsAreHarmless(t *testing.T) {
	const outside = int32(24 * pageBytes)
	tests := []struct {
		name      string
		arguments [][]byte
		errno     uint32
		scratch   string // first bytes of the scratch memory
	}{
		{"args_sizes_get", [][]byte{i32c(scratchAt), i32c(scratchAt + 4)}, errnoSuccess, "\x00\x00\x00\x00\x00\x00\x00\x00\xaa"},
		{"args_sizes_get", [][]byte{i32c(outside), i32c(scratchAt)}, errnoFault, "\xaa"},
		{"environ_sizes_get", [][]byte{i32c(scratchAt), i32c(scratchAt + 4)}, errnoSuccess, "\x00\x00\x00\x00\x00\x00\x00\x00\xaa"},
		{"environ_sizes_get", [][]byte{i32c(scratchAt), i32c(-1)}, errnoFault, "\x00\x00\x00\x00\xaa"},
		{"args_get", [][]byte{i32c(scratchAt), i32c(scratchAt)}, errnoSuccess, "\xaa"},
		{"environ_get", [][]byte{i32c(outside), i32c(outside)}, errnoSuccess, "\xaa"},
		{"clock_res_get", [][]byte{i32c(1), i32c(scratchAt)}, errnoSuccess, "\x01\x00\x00\x00\x00\x00\x00\x00\xaa"},
		{"clock_res_get", [][]byte{i32c(4), i32c(scratchAt)}, errnoInval, "\xaa"},
		{"clock_res_get", [][]byte{i32c(0), i32c(outside)}, errnoFault, "\xaa"},
		{"clock_time_get", [][]byte{i32c(0), i64c(1), i32c(scratchAt)}, errnoSuccess, "\x39\x30\x00\x00\x00\x00\x00\x00\xaa"},
		{"clock_time_get", [][]byte{i32c(3), i64c(1), i32c(scratchAt)}, errnoSuccess, "\x39\x30\x00\x00\x00\x00\x00\x00\xaa"},
		{"clock_time_get", [][]byte{i32c(4), i64c(1), i32c(scratchAt)}, errnoInval, "\xaa"},
		{"clock_time_get", [][]byte{i32c(1), i64c(1), i32c(outside - 7)}, errnoFault, "\xaa"},
		{"fd_close", [][]byte{i32c(1)}, errnoBadF, "\xaa"},
		{"fd_fdstat_get", [][]byte{i32c(2), i32c(scratchAt)}, errnoSuccess, "\x02\x00\x00\x00\x00\x00\x00\x00\x40" + strings.Repeat("\x00", 15) + "\xaa"},
		{"fd_fdstat_get", [][]byte{i32c(0), i32c(scratchAt)}, errnoSuccess, "\x02\x00\x00\x00\x00\x00\x00\x00\x02" + strings.Repeat("\x00", 15) + "\xaa"},
		{"fd_fdstat_get", [][]byte{i32c(3), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_fdstat_get", [][]byte{i32c(1), i32c(outside - 23)}, errnoFault, "\xaa"},
		{"fd_fdstat_set_flags", [][]byte{i32c(1), i32c(0)}, errnoBadF, "\xaa"},
		{"fd_filestat_get", [][]byte{i32c(1), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_prestat_get", [][]byte{i32c(3), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_prestat_dir_name", [][]byte{i32c(3), i32c(scratchAt), i32c(9)}, errnoBadF, "\xaa"},
		{"fd_read", [][]byte{i32c(0), i32c(scratchAt), i32c(1), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_seek", [][]byte{i32c(0), i64c(0), i32c(0), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_write", [][]byte{i32c(3), i32c(scratchAt), i32c(0), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"fd_write", [][]byte{i32c(1), i32c(scratchAt), i32c(0), i32c(scratchAt)}, errnoSuccess, "\x00\x00\x00\x00\xaa"},
		{"fd_write", [][]byte{i32c(1), i32c(scratchAt), i32c(1025), i32c(scratchAt)}, errnoInval, "\xaa"},
		{"fd_write", [][]byte{i32c(1), i32c(scratchAt), i32c(1), i32c(scratchAt)}, errnoFault, "\xaa"}, // the first span begins at address 0xaaaaaaaa
		{"fd_write", [][]byte{i32c(1), i32c(outside - 4), i32c(1), i32c(scratchAt)}, errnoFault, "\xaa"},
		{"fd_write", [][]byte{i32c(1), i32c(-8), i32c(2), i32c(scratchAt)}, errnoFault, "\xaa"},
		{"path_filestat_get", [][]byte{i32c(3), i32c(0), i32c(scratchAt), i32c(1), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"path_open", [][]byte{i32c(3), i32c(0), i32c(scratchAt), i32c(1), i32c(0), i64c(-1), i64c(-1), i32c(0), i32c(scratchAt)}, errnoBadF, "\xaa"},
		{"random_get", [][]byte{i32c(scratchAt), i32c(64<<10 + 1)}, errnoInval, "\xaa"},
		{"random_get", [][]byte{i32c(outside - 1), i32c(2)}, errnoFault, "\xaa"},
		{"random_get", [][]byte{i32c(-1), i32c(2)}, errnoFault, "\xaa"},
		{"poll_oneoff", [][]byte{i32c(scratchAt), i32c(scratchAt), i32c(0), i32c(scratchAt)}, errnoInval, "\xaa"},
		{"poll_oneoff", [][]byte{i32c(scratchAt), i32c(scratchAt), i32c(65), i32c(scratchAt)}, errnoInval, "\xaa"},
		{"poll_oneoff", [][]byte{i32c(outside - 47), i32c(scratchAt), i32c(1), i32c(scratchAt)}, errnoFault, "\xaa"},
		{"poll_oneoff", [][]byte{i32c(scratchAt), i32c(-31), i32c(1), i32c(scratchAt)}, errnoFault, "\xaa"},
		{"poll_oneoff", [][]byte{i32c(scratchAt), i32c(scratchAt), i32c(1), i32c(scratchAt)}, errnoInval, "\xaa"}, // a subscription with the tag 0xaa
		{"sched_yield", nil, errnoSuccess, "\xaa"},
	}
	tested := map[string]bool{"proc_exit": true} // TestFaults tests proc_exit
	e := newEngine(t, Options{})
	for i, test := range tests {
		tested[test.name] = true
		t.Run(fmt.Sprintf("%s/%d", test.name, i), func(t *testing.T) {
			g := instantiate(t, mustCompile(t, e, probe(test.name, test.arguments...).build()))
			out, err := g.Handle(0, nil, Env{Now: 12345})
			got := split(t, out, err)
			if got.errno != test.errno || !bytes.HasPrefix(got.scratch, []byte(test.scratch)) {
				t.Errorf("errno %d, scratch % x..., want %d, % x", got.errno, got.scratch[:len(test.scratch)], test.errno, test.scratch)
			}
		})
	}
	for _, f := range wasiFunctions() {
		if !tested[f.name] {
			t.Errorf("%s has no test", f.name)
		}
		if !abi.IsWASIFunction(f.name) {
			t.Errorf("%s is not in the contract", f.name)
		}
	}
}

// TestTimeAndRandomness checks that a guest sees the time and random numbers
// of the call while it decides, and constant ones while it evolves state, and
// that the same call in a new instance sees the same time and numbers.
func TestTimeAndRandomness(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		e := newEngine(t, opts)
		clock := mustCompile(t, e, probe("clock_time_get", i32c(1), i64c(0), i32c(scratchAt)).build())
		random := mustCompile(t, e, probe("random_get", i32c(scratchAt), i32c(100)).build())
		handle := func(m *Module, env Env) []byte {
			out, err := instantiate(t, m).Handle(0, nil, env)
			return split(t, out, err).scratch
		}
		evolve := func(m *Module) []byte {
			g := instantiate(t, m)
			if _, err := g.Handle(0, nil, Env{Now: 5, Seed: 9}); err != nil {
				t.Fatal(err)
			}
			if err := g.Apply(0, nil); err != nil {
				t.Fatal(err)
			}
			out, err := g.Snapshot(0)
			return split(t, out, err).scratch
		}
		if got := binary.LittleEndian.Uint64(handle(clock, Env{Now: 77})); got != 77 {
			t.Errorf("the clock of a command is %d, want 77", got)
		}
		if got := binary.LittleEndian.Uint64(evolve(clock)); got != fixedInstant {
			t.Errorf("the clock of apply is %d, want %d", got, int64(fixedInstant))
		}
		one, same, other := handle(random, Env{Seed: 1}), handle(random, Env{Seed: 1}), handle(random, Env{Seed: 2})
		if !bytes.Equal(one, same) || bytes.Equal(one[:16], other[:16]) {
			t.Errorf("random numbers do not follow the seed: % x, % x, % x", one[:16], same[:16], other[:16])
		}
		if bytes.Contains(one[:100], []byte{0xaa, 0xaa, 0xaa, 0xaa}) || one[100] != 0xaa {
			t.Errorf("random_get filled a different range than requested: % x", one[:104])
		}
		if !bytes.Equal(evolve(random), evolve(random)) {
			t.Error("apply sees different random numbers in another instance")
		}
	})
}

func TestContractFunctions(t *testing.T) {
	guest := (&testGuest{}).importing("hostd", "now").importing("hostd", "random")
	store := func(at int32, value []byte) []byte { return cat(i32c(at), value, op(opI64Store, aligned(3))) }
	guest.bodies = map[string][]byte{
		abi.ExportHandle: cat(store(scratchAt, call(0)), store(scratchAt+8, call(1)), store(scratchAt+16, call(1)), spanc(scratchAt, 24)),
		abi.ExportQuery:  cat(store(scratchAt, call(0)), store(scratchAt+8, call(1)), spanc(scratchAt, 16)),
	}
	g := start(t, Options{}, guest)
	out, err := g.Handle(0, nil, Env{Now: -3, Seed: 42})
	if err != nil {
		t.Fatal(err)
	}
	want := binary.LittleEndian.AppendUint64(nil, math.MaxUint64-2)
	want = binary.LittleEndian.AppendUint64(want, 0xbdd732262feb6e95) // published values of SplitMix64 for the seed 42
	want = binary.LittleEndian.AppendUint64(want, 0x28efe333b266f103)
	if !bytes.Equal(out, want) {
		t.Errorf("handle got % x, want % x", out, want)
	}
	if out, err = g.Query(0, nil, Env{Now: -3, Seed: 42}); err != nil || !bytes.Equal(out, want[:16]) {
		t.Errorf("query got % x, %v, want % x", out, err, want[:16])
	}
}

func TestPollAdvancesClock(t *testing.T) {
	subscription := func(userdata uint64, tag byte, timeout uint64, flags uint16) []byte {
		s := make([]byte, subscriptionBytes)
		binary.LittleEndian.PutUint64(s, userdata)
		s[atTag] = tag
		binary.LittleEndian.PutUint64(s[atTimeout:], timeout)
		binary.LittleEndian.PutUint16(s[atFlags:], flags)
		return s
	}
	tests := []struct {
		name          string
		subscriptions []byte
		after         int64
		ready         []uint64 // userdata of the expected events
	}{
		{"relative", subscription(1, 0, 50, 0), 1050, []uint64{1}},
		{"absolute", subscription(1, 0, 1500, 1), 1500, []uint64{1}},
		{"in the past", subscription(1, 0, 5, 1), 1000, []uint64{1}},
		{"two, the earlier comes", cat(subscription(1, 0, 70, 0), subscription(2, 0, 60, 0)), 1060, []uint64{2}},
		{"two at once", cat(subscription(1, 0, 70, 0), subscription(2, 0, 1070, 1)), 1070, []uint64{1, 2}},
		{"descriptor fails at once", cat(subscription(1, 0, 70, 0), subscription(2, 1, 0, 0)), 1000, []uint64{2}},
		{"for ever", subscription(1, 0, math.MaxUint64, 0), math.MaxInt64, []uint64{1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			after, ok := passTime(1000, test.subscriptions)
			if !ok || after != test.after {
				t.Errorf("clock is %d, %v, want %d", after, ok, test.after)
			}
			events := make([]byte, len(test.subscriptions))
			n := writeEvents(events, test.subscriptions, 1000, after)
			var ready []uint64
			for i := range n {
				ready = append(ready, binary.LittleEndian.Uint64(events[i*eventBytes:]))
			}
			if fmt.Sprint(ready) != fmt.Sprint(test.ready) {
				t.Errorf("ready are %v, want %v", ready, test.ready)
			}
		})
	}

	// The same in a guest: it sleeps 500 ns, with input and output at the same
	// address, and reads the clock.
	guest := (&testGuest{data: [][]byte{cat([]byte{0}, i32c(scratchAt), []byte{opEnd}, text(string(subscription(7, 0, 500, 0))))}}).
		importing(abi.ImportWASI, "poll_oneoff").importing(abi.ImportWASI, "clock_time_get")
	guest.bodies = map[string][]byte{abi.ExportHandle: cat(
		i32c(scratchAt), i32c(scratchAt), i32c(1), i32c(scratchAt+64), call(0), op(opDrop),
		i32c(0), i64c(0), i32c(scratchAt+32), call(1), op(opDrop), spanc(scratchAt, 68))}
	out, err := start(t, Options{}, guest).Handle(0, nil, Env{Now: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if clock, events := binary.LittleEndian.Uint64(out[32:]), binary.LittleEndian.Uint32(out[64:]); clock != 1500 || events != 1 || out[0] != 7 {
		t.Errorf("clock %d, %d events, userdata %d", clock, events, out[0])
	}
}

// TestGuestLogIsCapped checks that the lines and bytes that a call may log
// are limited, for both ways of logging.
func TestGuestLogIsCapped(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	long := strings.Repeat("y", 1<<10) + "CUT"
	message := "line\"one\n" + strings.Repeat("z\n", 40) + "rest"
	guest := (&testGuest{data: [][]byte{
		cat([]byte{0}, i32c(scratchAt), []byte{opEnd}, text(long)),
		cat([]byte{0}, i32c(logTextAt), []byte{opEnd}, text(message)),
		cat([]byte{0}, i32c(logTextAt+512), []byte{opEnd}, text(string(cat(
			binary.LittleEndian.AppendUint32(nil, logTextAt), binary.LittleEndian.AppendUint32(nil, uint32(len(message)))))))}}).
		importing(abi.ImportModule, "log").importing(abi.ImportWASI, "fd_write")
	logLong := cat(i32c(2), i32c(scratchAt), i32c(int32(len(long))), call(0))
	guest.bodies = map[string][]byte{
		abi.ExportHandle: cat(bytes.Repeat(logLong, 33), i32c(0), i32c(scratchAt), i32c(1), call(0), i64c(0)),
		abi.ExportQuery:  cat(i32c(2), i32c(logTextAt+512), i32c(1), i32c(logTextAt+600), call(1), op(opDrop), spanc(logTextAt+600, 4)),
		abi.ExportDrop:   cat(i32c(2), i32c(logTextAt+512), i32c(1), i32c(logTextAt+600), call(1), op(opDrop)),
	}
	g := start(t, Options{Logger: logger}, guest)
	if _, err := g.Handle(0, nil, Env{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"guest log\""); n != 32 {
		t.Errorf("%d lines were logged, want 32", n)
	}
	if strings.Contains(log.String(), "CUT") || !strings.Contains(log.String(), "y ") && !strings.Contains(log.String(), "y\n") {
		t.Error("a line was not truncated to 1 KiB")
	}
	if !strings.Contains(log.String(), "dropped=2") {
		t.Errorf("the dropped lines were not counted: %s", log.String()[log.Len()-200:])
	}
	if !strings.Contains(log.String(), "module=test") {
		t.Error("the log does not name the module")
	}

	log.Reset()
	out, err := g.Query(0, nil, Env{})
	if err != nil || binary.LittleEndian.Uint32(out) != uint32(len(message)) {
		t.Fatalf("fd_write took % x, %v", out, err)
	}
	if n := strings.Count(log.String(), "guest log\" "); n != 32 || !strings.Contains(log.String(), `line="line\"one"`) || !strings.Contains(log.String(), "dropped=") {
		t.Errorf("%d lines were logged, want 32: %s", n, log.String())
	}
	log.Reset()
	if err := g.Drop(0); err != nil { // another call has its own limit
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "guest log\" "); n != 32 {
		t.Errorf("%d lines were logged by the next call, want 32", n)
	}
}

// TestGuestLogNamesTheEntity checks that a guest's line in the node's log names
// the called entity, and that the line about dropped lines does too.
func TestGuestLogNamesTheEntity(t *testing.T) {
	var log bytes.Buffer
	id := "a"
	l := guestLog{logger: slog.New(slog.NewTextHandler(&log, nil)), lineLimit: 1, byteLimit: 4, about: func() (string, string) { return "counter", id }}
	l.line(abi.LogInfo, []byte("x"))
	l.line(abi.LogInfo, []byte("y"))
	l.end()
	id = ""
	l.line(abi.LogInfo, []byte("z"))
	for _, want := range []string{"entity_type=counter entity_id=a line=x\n", "entity_type=counter entity_id=a dropped=1 limit=1\n", "entity_type=counter line=z\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %q", log.String(), want)
		}
	}
}

// TestPartialLines checks that a line written in pieces is logged as one
// line, and that the end of the call logs an unfinished line.
func TestPartialLines(t *testing.T) {
	var log bytes.Buffer
	l := guestLog{logger: slog.New(slog.NewTextHandler(&log, nil)), lineLimit: 3, byteLimit: 4}
	l.write([]byte("a"))
	l.write([]byte("b\ncd"))
	l.write([]byte("efgh"))
	l.end()
	for _, want := range []string{"line=ab\n", "line=cdef\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %q", log.String(), want)
		}
	}
	if strings.Count(log.String(), "\n") != 2 || strings.Contains(log.String(), "dropped") {
		t.Errorf("log is %q", log.String())
	}
}
