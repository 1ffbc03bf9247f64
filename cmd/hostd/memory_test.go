package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHeapLimitLeavesRoomForGuests(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		group, guests, limit uint64
		enough               bool
	}{
		{10 * gib, gib, 8 * gib, true},
		{2 * gib, 2 * gib, gib / 2, false},
		{gib, 4 * gib, gib / 4, false},
	} {
		got, enough := heapLimit(tt.group, tt.guests)
		if got/(1<<20) != tt.limit/(1<<20) && got != tt.limit && tt.limit-got > 100 || enough != tt.enough {
			t.Errorf("group %d, guests %d: %d, %v; want %d, %v", tt.group, tt.guests, got, enough, tt.limit, tt.enough)
		}
	}
}

func TestCgroupMemoryIsMinimumOnPath(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		bytes uint64
		ok    bool
	}{
		"container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30, true},
		"slice": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/hostd.service\n", "sys/fs/cgroup/system.slice/memory.max": "1000\n", "sys/fs/cgroup/system.slice/hostd.service/memory.max": "max\n",
		}, 1000, true},
		"none":      {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0, false},
		"version 1": {map[string]string{"proc/self/cgroup": "5:cpu:/\n4:memory:/d\n", "sys/fs/cgroup/memory/d/memory.limit_in_bytes": "4096\n"}, 4096, true},
		"no groups": {nil, 0, false},
	} {
		root := t.TempDir()
		for file, text := range tt.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if bytes, ok := groupMemory(root); ok != tt.ok || ok && bytes != tt.bytes {
			t.Errorf("%s: %d, %v; want %d, %v", name, bytes, ok, tt.bytes, tt.ok)
		}
	}
}
