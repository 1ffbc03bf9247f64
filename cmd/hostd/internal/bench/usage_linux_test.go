package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const head = "4242 (a) 1 (b) S 1 4242 4242 0 -1 4194560 1 2 3 4 "
	for _, tt := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{head + "150 75 0 0 20 0 9 0 1\n", 2250 * time.Millisecond, true},
		{head + "150", 0, false},
		{head + "150 x 0\n", 0, false},
		{"", 0, false},
	} {
		if got, err := parseStat([]byte(tt.stat)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %s, %v", tt.stat, got, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const whole = "Name:\tx\nVmHWM:\t 4096 kB\nRssAnon:\t  1024 kB\nRssFile:\t 7 kB\nRssShmem:\t1 kB\n"
	for _, tt := range []struct {
		status string
		want   Usage
		ok     bool
	}{
		{whole, Usage{Anonymous: 1 << 20, Files: 8 << 10, Peak: 4 << 20}, true},
		{strings.Replace(whole, "RssAnon", "Rss", 1), Usage{}, false},
		{strings.Replace(whole, "1024", "much", 1), Usage{}, false},
		{"Name:\tx\n", Usage{}, false},
	} {
		var got Usage
		if err := parseStatus([]byte(tt.status), &got); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %+v, %v", tt.status, got, err)
		}
	}
}

// A busy process has CPU time, and a missing process is an error.
func TestReadUsage(t *testing.T) {
	before, err := ReadUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.Anonymous == 0 {
		t.Error("this process has no memory")
	}
	for n := 0; ; n++ {
		cpu, ok := Processes{os.Getpid()}.CPU()
		if !ok {
			t.Fatal("this process is not there")
		}
		if cpu > before.CPU {
			break
		}
	}
	if _, ok := (Processes{os.Getpid(), 1 << 30}).CPU(); ok {
		t.Error("a process that is not there has taken time")
	}
	if _, ok := (Processes{}).CPU(); ok {
		t.Error("no process has taken time")
	}
}

func TestParseSwitches(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n": 42,
		"nonvoluntary_ctxt_switches:\t7\n":                                         -1,
		"voluntary_ctxt_switches:\tmany\n":                                         -1,
	} {
		got, err := parseSwitches([]byte(status))
		if want < 0 && err == nil || want >= 0 && (err != nil || got != uint64(want)) {
			t.Errorf("%q: %d, %v", status, got, err)
		}
	}
}

// A process whose threads wait for each other has switches.
func TestReadSwitches(t *testing.T) {
	before, ok := Processes{os.Getpid()}.Usage()
	if !ok {
		t.Fatal("this process is not there")
	}
	for range 20 {
		time.Sleep(time.Millisecond)
	}
	if after, ok := (Processes{os.Getpid()}).Usage(); !ok || after.Switches <= before.Switches {
		t.Errorf("%d switches, and %d before it waited", after.Switches, before.Switches)
	}
}
