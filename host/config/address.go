package config

import (
	"fmt"
	"net"
	"strconv"
)

// Addr returns the address that others reach a node at which listens on
// listening: Advertise where it is given. Port 0 of Advertise stands for the
// port that it listens on.
func (c *Config) Addr(listening net.Addr) string {
	if c.Advertise == "" {
		return listening.String()
	}
	host, port, err := net.SplitHostPort(c.Advertise)
	if _, own, err2 := net.SplitHostPort(listening.String()); err == nil && err2 == nil && port == "0" {
		return net.JoinHostPort(host, own)
	}
	return c.Advertise
}

// Loopback reports whether the node can be reached from this machine only. A
// name counts only when it is localhost: others may resolve to anything.
func (c *Config) Loopback() bool {
	return loopback(c.Listen) && (c.Advertise == "" || loopback(c.Advertise))
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// checkAddresses refuses addresses that others can reach, unless that was
// asked for by name: calls are not authenticated yet.
func (c *Config) checkAddresses(fault func(key, format string, args ...any)) {
	for _, a := range []struct{ key, address string }{{"listen", c.Listen}, {"advertise", c.Advertise}} {
		if a.key == "advertise" && a.address == "" {
			continue
		}
		host, _, err := net.SplitHostPort(a.address)
		if err != nil {
			fault(a.key, "is %q, must be HOST:PORT", a.address)
			continue
		}
		if c.InsecureListen || loopback(a.address) {
			continue
		}
		if host == "" {
			host = "every interface"
		}
		fault(a.key, "is %s, which is not a loopback address: calls are not authenticated, so anybody who reaches the port owns the node; "+
			"use 127.0.0.1, or pass --insecure-listen when something else guards the port", host)
	}
	if c.Advertise != "" && wildcard(c.Advertise) {
		fault("advertise", "is %q, which names no host: give the one that the other nodes reach", c.Advertise)
	}
	if c.Advertise == "" && (len(c.Seeds) > 0 || c.MinMembers > 1) && wildcard(c.Listen) {
		fault("advertise", "is empty and listen is every interface: give the address that the other nodes reach")
	}
}

// wildcard reports that an address names no host that one could call.
func wildcard(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// checkSeed checks one address to join through.
func checkSeed(seed string) error {
	host, port, err := net.SplitHostPort(seed)
	if err != nil || host == "" || len(seed) > maxAddressBytes {
		return fmt.Errorf("%.64q is not HOST:PORT", seed)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%.64q has no port from 1 to 65535", seed)
	}
	return nil
}
