package host_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hostd/hostd/tests/support/spans"
	"github.com/hostd/hostd/tests/support/testkit"
	"golang.org/x/sys/unix"
)

// roles identifies the goroutines that a command passes through by functions on
// their stacks.
var roles = []struct{ function, role string }{
	{"(*http2serverConn).runHandler", "request"},
	{"(*serverConn).runHandler", "request"},
	{"lane.(*Lane).run", "lane"},
	{"raftgroup.(*Loop).run", "loop"},
	{"eventlog.(*Applier).run", "applier"},
	{"eventlog.(*Applier).writer", "writer"},
	{"http.(*conn).serve", "connection"},
	{"readFrames", "connection"},
	{"writeFrameAsync", "connection"},
	{"badger", "store"},
	{"gcBgMarkWorker", "collector"},
	{"bgsweep", "collector"},
	{"bgscavenge", "collector"},
}

func roleOf(function string) string {
	for _, r := range roles {
		if strings.Contains(function, r.function) {
			return r.role
		}
	}
	return ""
}

// BenchmarkSpans breaks down the time of unary commands inside the node, from
// the arrival of the request to the end of its reply, by what the commands wait
// for. It runs with one caller and with 64. An operation consists of two runs
// of `hostd bench`, of which the second is traced. The client is a separate
// process.
//
//	go test -run '^$' -bench Spans -benchtime 1x ./host
func BenchmarkSpans(b *testing.B) {
	for _, workload := range []string{"unary-one", "unary"} {
		b.Run(workload, func(b *testing.B) {
			n, c := startBenchOn(b, b.TempDir())
			b.Cleanup(func() {
				if err := n.Stop(context.Background()); err != nil {
					b.Error(err)
				}
			})
			if _, err := c.Upload(b.Context(), testkit.BuildExample(b, "counter"), true); err != nil {
				b.Fatal(err)
			}
			program := testkit.Program(b)
			load := func(d time.Duration) (r struct {
				Operations int
				P50Us      float64
			}) {
				cmd := exec.CommandContext(b.Context(), program, "bench", "--addr", "http://"+n.Addr(), "--workload", workload, "--duration", d.String(), "--warm-up", "1ms", "-o", "json")
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				var report struct{ Results []json.RawMessage }
				if err == nil {
					err = json.Unmarshal(out, &report)
				}
				if err == nil && len(report.Results) == 1 {
					err = json.Unmarshal(report.Results[0], &r)
				}
				if err != nil || r.Operations == 0 {
					b.Fatalf("%v: %s", err, out)
				}
				return r
			}
			for b.Loop() {
				load(time.Second) // until the counters exist
				var before, after unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
					b.Fatal(err)
				}
				plain := load(2 * time.Second)
				if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
					b.Fatal(err)
				}
				per := func(n int64) float64 { return float64(n) / float64(plain.Operations) }
				b.ReportMetric(plain.P50Us, "p50-us")
				b.ReportMetric(per(after.Nvcsw-before.Nvcsw), "waits/command")
				b.ReportMetric(per(after.Nivcsw-before.Nivcsw), "preemptions/command")
				b.ReportMetric(per(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano())/1e3, "cpu-us/command")

				var text bytes.Buffer
				if err := trace.Start(&text); err != nil {
					b.Fatal(err)
				}
				load(time.Second)
				trace.Stop()
				read, err := spans.Read(&text, roleOf)
				if err != nil {
					b.Fatal(err)
				}
				fmt.Print(table(b, read)) // printed in full, because benchmark logs are truncated
			}
		})
	}
}

// table formats a line for each part of a command's time, longest first: the
// mean over the half of the commands around the median. It also has a line for
// the time that the goroutines of each role took per command, as the mean over
// all commands.
func table(b *testing.B, t *spans.Trace) string {
	all := t.Requests("request")
	if len(all) == 0 {
		b.Fatal("no command began and ended in the trace")
	}
	length := func(request []spans.Span) (sum time.Duration) {
		for _, s := range request {
			sum += s.Time
		}
		return sum
	}
	slices.SortFunc(all, func(a, b []spans.Span) int { return cmp.Compare(length(a), length(b)) })
	typical := all[len(all)/4 : max(len(all)*3/4, len(all)/4+1)]
	sums := map[string]time.Duration{}
	times := map[string]int{}
	for _, request := range typical {
		for _, s := range request {
			name := part(s)
			sums[name] += s.Time
			times[name]++
		}
	}
	each := func(d time.Duration, n int) float64 { return float64(d) / 1e3 / float64(n) }
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d commands, p50 %v\t\t\t\n", len(all), length(all[len(all)/2]).Round(time.Microsecond))
	fmt.Fprintf(w, "part\tus a command\ttimes a command\t\n")
	for _, name := range slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return int(sums[b] - sums[a]) }) {
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t\n", name, each(sums[name], len(typical)), float64(times[name])/float64(len(typical)))
	}
	fmt.Fprintf(w, "\t\t\t\t\t\nrole\truns\tin calls\twoken\twakes a command\t\n")
	usage := t.Usage()
	for _, role := range slices.SortedFunc(maps.Keys(usage), func(a, b string) int { return int(usage[b].Runs - usage[a].Runs) }) {
		u := usage[role]
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f\t\n", orOthers(role), each(u.Runs, len(all)), each(u.Calls, len(all)), each(u.Woken, len(all)), float64(u.Wakes)/float64(len(all)))
	}
	_ = w.Flush()
	return out.String()
}

func orOthers(role string) string {
	if role == "" {
		return "others"
	}
	return role
}

func part(s spans.Span) string {
	role := orOthers(s.Role)
	switch s.Doing {
	case spans.Calls:
		if strings.HasSuffix(strings.ToLower(s.Call), "sync") {
			return "sync"
		}
		return role + " in a call of the system"
	case spans.Woken:
		return "wake of the " + role
	case spans.Waits:
		return role + " waits"
	}
	if s.Next != s.Role && s.Next != "" {
		return role + ", then " + s.Next
	}
	return role + " runs"
}
