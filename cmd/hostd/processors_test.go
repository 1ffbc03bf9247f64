package main

import (
	"testing"
	"testing/fstest"
)

func TestCPUQuota(t *testing.T) {
	for _, tt := range []struct {
		what  string
		files map[string]string
		want  bool
	}{
		{"no control groups", nil, false},
		{"version 2, none", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n",
		}, false},
		{"version 2, its own", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n",
		}, true},
		{"version 2, one around it", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "350000 100000\n",
		}, true},
		{"version 2, in a container", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n",
		}, true},
		{"version 1, none", map[string]string{
			"proc/self/cgroup": "9:name=systemd:/\n4:cpu,cpuacct:/a\n2:cpuset:/\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
		}, false},
		{"version 1, in a container that sees the host's name of its group", map[string]string{
			"proc/self/cgroup": "4:cpu,cpuacct:/docker/0123\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
		}, true},
		{"version 1, of another controller", map[string]string{
			"proc/self/cgroup": "4:cpuset:/a\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "150000\n",
		}, false},
	} {
		files := fstest.MapFS{}
		for name, text := range tt.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cpuQuota(files); got != tt.want {
			t.Errorf("%s: %v", tt.what, got)
		}
	}
}
