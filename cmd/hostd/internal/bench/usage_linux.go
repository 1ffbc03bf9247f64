package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc, see proc(5): USER_HZ is
// 100 on every architecture that Go supports.
const clockTick = 10 * time.Millisecond

// ReadUsage returns the usage of a process. CPU has a resolution of 10 ms.
func ReadUsage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	if u.CPU, err = parseStat(stat); err == nil {
		err = parseStatus(status, &u)
	}
	if err == nil {
		u.Switches, err = readSwitches(fmt.Sprintf("/proc/%d/task", pid))
	}
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return u, nil
}

// readSwitches adds up how often the threads of a process have waited. It skips
// a thread that ends meanwhile.
func readSwitches(tasks string) (total uint64, err error) {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		status, err := os.ReadFile(filepath.Join(tasks, t.Name(), "status"))
		if err != nil {
			continue
		}
		n, err := parseSwitches(status)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// parseSwitches parses how often a thread has waited.
func parseSwitches(status []byte) (uint64, error) {
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "voluntary_ctxt_switches" {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, errors.New("its status has no voluntary_ctxt_switches")
}

// parseStat parses utime and stime, fields 14 and 15. Field 2 is a name in
// parentheses, which may contain anything.
func parseStat(stat []byte) (time.Duration, error) {
	rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(rest) < 13 {
		return 0, fmt.Errorf("its stat has %d fields after the name", len(rest))
	}
	var ticks uint64
	for _, field := range rest[11:13] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// parseStatus parses the memory of a process.
func parseStatus(status []byte, u *Usage) error {
	fields := map[string]uint64{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "RssAnon", "RssFile", "RssShmem", "VmHWM":
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return err
			}
			fields[name] = kib << 10
		}
	}
	for _, name := range []string{"RssAnon", "RssFile", "RssShmem", "VmHWM"} {
		if _, ok := fields[name]; !ok {
			return fmt.Errorf("its status has no %s", name)
		}
	}
	u.Anonymous, u.Files, u.Peak = fields["RssAnon"], fields["RssFile"]+fields["RssShmem"], fields["VmHWM"]
	return nil
}
