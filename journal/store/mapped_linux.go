package store

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MappedBytes returns how many bytes of this process's resident memory are file
// pages: tables and memtable logs of all its stores, and the program.
func MappedBytes() (int64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 3 {
		return 0, fmt.Errorf("/proc/self/statm has %d fields", len(fields))
	}
	pages, err := strconv.ParseInt(fields[2], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// releasePages releases the pages of shared mappings of the files. The caller
// keeps the files mapped during the call.
func releasePages(files map[string]bool) (bytes int64, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		from, to, ok := sharedMapping(lines.Text(), files)
		if !ok {
			continue
		}
		// Changes through a shared mapping are already in the file's page
		// cache.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return bytes, os.NewSyscallError("madvise", errno)
		}
		bytes += int64(to - from)
	}
	return bytes, lines.Err()
}

// mappedTable returns the name of the table mapped at the address, or "".
func mappedTable(at uintptr) string {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return ""
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), " (deleted)")
		path := strings.IndexByte(line, '/')
		if path < 0 || filepath.Ext(line) != ".sst" {
			continue
		}
		from, to, ok := sharedMapping(line, map[string]bool{line[path:]: true})
		if ok && from <= at && at < to {
			return filepath.Base(line)
		}
	}
	return ""
}

// sharedMapping parses a line of /proc/self/maps, see proc_pid_maps(5):
//
//	7f21a4600000-7f21a4a00000 rw-s 00000000 fe:00 1234    /data/store/000012.sst
func sharedMapping(line string, files map[string]bool) (from, to uintptr, ok bool) {
	path := strings.IndexByte(line, '/')
	if path < 0 || !files[line[path:]] {
		return 0, 0, false
	}
	fields := strings.Fields(line[:path])
	if len(fields) != 5 || len(fields[1]) != 4 || fields[1][3] != 's' {
		return 0, 0, false
	}
	low, high, _ := strings.Cut(fields[0], "-")
	a, errA := strconv.ParseUint(low, 16, 64)
	b, errB := strconv.ParseUint(high, 16, 64)
	return uintptr(a), uintptr(b), errA == nil && errB == nil && a < b
}
