// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// greeter greets each connection by its name, and then repeats one line.
func greeter(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintln(conn, name)
				line, _ := bufio.NewReader(conn).ReadString('\n')
				fmt.Fprint(conn, line)
			}()
		}
	}()
	return l
}

func TestBalancer(t *testing.T) {
	one, two := greeter(t, "one"), greeter(t, "two")
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	b := newBalancer([]netip.AddrPort{
		netip.MustParseAddrPort(one.Addr().String()), netip.MustParseAddrPort(two.Addr().String()),
	})
	go b.serve(front)
	ask := func() string {
		conn, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		name, _ := r.ReadString('\n')
		fmt.Fprintln(conn, "hello")
		if echo, _ := r.ReadString('\n'); name != "" && echo != "hello\n" {
			t.Errorf("%q comes back", echo)
		}
		return name
	}
	seen := map[string]int{}
	for range 4 {
		seen[ask()]++
	}
	if seen["one\n"] != 2 || seen["two\n"] != 2 {
		t.Errorf("not in turn: %v", seen)
	}
	one.Close()
	for range 3 {
		if got := ask(); got != "two\n" {
			t.Errorf("%q answers, want the one that is left", got)
		}
	}
	two.Close()
	if got := ask(); got != "" {
		t.Errorf("%q answers though none is left", got)
	}
}
