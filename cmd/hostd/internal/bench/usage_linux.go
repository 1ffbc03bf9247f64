package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc, see proc(5): USER_HZ is
// 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// ReadUsage returns what a process has taken. CPU is counted in steps of 10 ms.
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
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return u, nil
}

// parseStat reads utime and stime, the 14th and 15th field. The second is a
// name in parentheses, which may hold anything.
func parseStat(stat []byte) (time.Duration, error) {
	rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(rest) < 13 {
		return 0, fmt.Errorf("its stat has %d fields behind the name", len(rest))
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

// parseStatus reads what a process has in memory.
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
