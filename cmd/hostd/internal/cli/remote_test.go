package cli

import "testing"

func TestAddressesWithoutAPort(t *testing.T) {
	for given, want := range map[string]string{
		"node":              "node:7070",
		"10.0.0.1":          "10.0.0.1:7070",
		"::1":               "[::1]:7070",
		"[::1]":             "[::1]:7070",
		"[::1]:80":          "[::1]:80",
		"node:80":           "node:80",
		"http://node":       "http://node",
		"https://node:7070": "https://node:7070",
		"node:":             "node:",
	} {
		if got := withPort(given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}
