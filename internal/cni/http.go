// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"coelan.io/coelan/internal/cni/wire"
)

// Listen makes the socket that the plugin connects to. Only root may. The socket appears
// under its name when connections are taken: a plugin that waits for it can connect as
// soon as it sees it. A socket that a dead agent left is replaced.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, 0o600)
	if err == nil {
		err = os.Rename(tmp, path) //nolint:forbidigo // a socket, of which nothing outlives the agent
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	return l, nil
}

// drainTimeout bounds how long requests that are under way may still take when the agent
// is asked to stop.
const drainTimeout = 10 * time.Second

// Serve answers requests on a listener until ctx ends, and then waits for those that are
// under way.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("CNI socket: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("CNI requests were still under way: %w", err), server.Close())
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

type handler func(context.Context, wire.Request) ([]byte, *wire.Error)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(wire.Header, wire.Version)
	handle, known := map[string]handler{wire.Path: s.Handle, wire.IPAMPath: s.HandleIPAM}[r.URL.Path]
	if !known || r.Method != http.MethodPost {
		writeError(w, http.StatusNotFound,
			newError(wire.CodeInvalidEnvironment, "not a CNI request: "+r.Method+" "+r.URL.Path, ""))
		return
	}
	var request wire.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxRequest)).Decode(&request); err != nil {
		writeError(w, http.StatusBadRequest, newError(wire.CodeDecoding, "request of the CNI plugin", err.Error()))
		return
	}
	result, cniErr := handle(r.Context(), request)
	if cniErr != nil {
		writeError(w, http.StatusInternalServerError, cniErr)
		return
	}
	write(w, http.StatusOK, result)
}

func writeError(w http.ResponseWriter, status int, e *wire.Error) {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and a number can be encoded
	}
	write(w, status, body)
}

// write sends the length too, so that the plugin knows whether it got all.
func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the plugin may be gone; its runtime asks again
}
