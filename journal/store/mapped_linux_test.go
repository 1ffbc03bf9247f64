package store

import "testing"

func TestSharedMapping(t *testing.T) {
	files := map[string]bool{"/data/a dir/000012.sst": true}
	for _, c := range []struct {
		line string
		want uintptr // length; 0 for none
	}{
		{"7f21a4600000-7f21a4a00000 rw-s 00000000 fe:00 1234                       /data/a dir/000012.sst", 4 << 20},
		{"7f21a4600000-7f21a4a00000 r--s 00000000 fe:00 1234 /data/a dir/000012.sst", 4 << 20},
		{"7f21a4600000-7f21a4a00000 rw-p 00000000 fe:00 1234 /data/a dir/000012.sst", 0},
		{"7f21a4600000-7f21a4a00000 rw-s 00000000 fe:00 1234 /data/a dir/000012.sst (deleted)", 0},
		{"7f21a4600000-7f21a4a00000 rw-s 00000000 fe:00 1234 /data/a dir/000013.sst", 0},
		{"7f21a4a00000-7f21a4600000 rw-s 00000000 fe:00 1234 /data/a dir/000012.sst", 0},
		{"7f21a4600000-7f21a4a00000 rw-p 00000000 00:00 0", 0},
		{"nonsense /data/a dir/000012.sst", 0},
	} {
		from, to, ok := sharedMapping(c.line, files)
		if ok != (c.want > 0) || ok && to-from != c.want {
			t.Errorf("%q: %x to %x, %v; want %d bytes", c.line, from, to, ok, c.want)
		}
	}
}
