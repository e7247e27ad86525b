// SPDX-License-Identifier: Apache-2.0

// Sctp plays the handshake of SCTP (RFC 9260, section 5) over raw sockets, for tests of the path of
// SCTP packets on a machine that has no SCTP in its kernel. It takes the place of two commands of
// upstream's test program:
//
//	sctp porter                                               answers on the ports of the variables SERVE_SCTP_PORT_*
//
// sctp connect HOST:PORT --timeout=DURATION --protocol=sctp ends with status 0 if
// there is an association
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail("UNKNOWN", errors.New("want porter or connect"))
	}
	switch os.Args[1] {
	case "porter":
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer cancel()
		ports, err := servedPorts(os.Environ())
		if err == nil {
			err = serve(ctx, ports)
		}
		if err != nil {
			fail("UNKNOWN", err)
		}
	case "connect":
		to, timeout, err := parseConnect(os.Args[2:])
		if err != nil {
			fail("UNKNOWN", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := connect(ctx, to); errors.Is(err, context.DeadlineExceeded) {
			fail("TIMEOUT", err)
		} else if err != nil {
			fail("OTHER", err)
		}
	default:
		fail("UNKNOWN", fmt.Errorf("%s: want porter or connect", os.Args[1]))
	}
}

// fail ends the program. Callers look for the kind.
func fail(kind string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", kind, err)
	os.Exit(1)
}

func servedPorts(environment []string) (map[uint16]bool, error) {
	ports := map[uint16]bool{}
	for _, variable := range environment {
		text, ok := strings.CutPrefix(variable, "SERVE_SCTP_PORT_")
		if !ok {
			continue
		}
		text, _, _ = strings.Cut(text, "=")
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		ports[uint16(port)] = true
	}
	return ports, nil
}

// defaultTimeout is a long one: without any, the other program waits forever.
const defaultTimeout = 30 * time.Second

func parseConnect(args []string) (to netip.AddrPort, timeout time.Duration, err error) {
	timeout = defaultTimeout
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case name == "--timeout":
			if timeout, err = time.ParseDuration(value); err != nil {
				return to, timeout, err
			}
		case strings.HasPrefix(name, "--"):
			// The protocol is known, and what to say does not matter.
		default:
			resolved, err := net.ResolveTCPAddr("tcp", arg)
			if err != nil {
				return to, timeout, err
			}
			to = resolved.AddrPort()
			to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
		}
	}
	if !to.IsValid() {
		return to, timeout, errors.New("connect: no address and port")
	}
	return to, timeout, nil
}
