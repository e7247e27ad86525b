// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"coelan.io/coelan/internal/cni/wire"
)

// exchange sends a request to the agent and returns its answer. Every error is a
// *wire.Error: the agent's own, or what is wrong between it and the plugin. For STATUS
// that is that the plugin is not available, at once; for anything else, that the runtime
// should try again.
func exchange(socket, path string, request []byte, deadline time.Time, status bool) ([]byte, error) {
	timeout := time.Until(deadline)
	wait, unreachable := min(socketWait, timeout), uint(wire.CodeTryAgainLater)
	if status {
		wait, unreachable = 0, wire.CodeNotAvailable
	}
	fail := func(msg string, err error) error {
		return &wire.Error{Code: unreachable, Msg: fmt.Sprintf(msg, socket), Details: err.Error()}
	}
	conn, err := dial(socket, wait, deadline)
	if err != nil {
		return nil, fail("the Coelan agent of this node cannot be reached on %s: is it running?", err)
	}
	defer conn.Close()
	answer, err := roundTrip(conn, path, request, deadline)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fail("the Coelan agent did not answer on %s within "+timeout.Round(time.Millisecond).String(), err)
	case err != nil:
		return nil, fail("the Coelan agent on %s ended while it was asked", err)
	}
	status200, body, err := parse(answer)
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeIO,
			Msg: "what listens on " + socket + " does not answer as a Coelan agent", Details: err.Error()}
	}
	if status200 {
		return body, nil
	}
	cniErr := &wire.Error{}
	if err := json.Unmarshal(body, cniErr); err != nil || cniErr.Code == 0 {
		return nil, &wire.Error{Code: wire.CodeIO, Msg: "the Coelan agent on " + socket + " failed without saying why",
			Details: string(body)}
	}
	return nil, cniErr
}

// roundTrip writes a request in HTTP/1.0, which needs no chunks, and reads to the end.
func roundTrip(conn *os.File, path string, body []byte, deadline time.Time) ([]byte, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.0\r\nHost: coelan\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, wire.MaxRequest))
	if err == nil && len(answer) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return answer, err
}

// parse takes an answer apart and checks that it is one of the agent's CNI server, and
// whole.
func parse(answer []byte) (ok bool, body []byte, err error) {
	head, body, found := bytes.Cut(answer, []byte("\r\n\r\n"))
	lines := bytes.Split(head, []byte("\r\n"))
	protocol, status, _ := bytes.Cut(lines[0], []byte(" "))
	if !found || !bytes.HasPrefix(protocol, []byte("HTTP/1.")) {
		return false, nil, errors.New("not HTTP")
	}
	var ours, whole bool
	for _, line := range lines[1:] {
		key, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(key, []byte(wire.Header)):
			ours = string(value) == wire.Version
		case bytes.EqualFold(key, []byte("Content-Length")):
			n, err := strconv.Atoi(string(value))
			whole = err == nil && n == len(body)
		}
	}
	switch {
	case !ours:
		return false, nil, errors.New("no header " + wire.Header + ": " + wire.Version)
	case !whole:
		return false, nil, errors.New("the answer was cut off")
	case len(body) > 0 && !json.Valid(body):
		return false, nil, errors.New("the answer is not JSON")
	}
	return bytes.HasPrefix(status, []byte("200")), body, nil
}
