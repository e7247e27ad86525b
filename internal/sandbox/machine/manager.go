// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runManager sets up the machine's network and then keeps its components running; it
// never returns without error.
func runManager() error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	for _, fd := range []int{controlFD, outerFD} {
		unix.CloseOnExec(fd)
	}
	control, err := net.FileListener(os.NewFile(controlFD, "control"))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	c, err := Read("/")
	if err != nil {
		return err
	}
	slog.Info("booting", "machine", c.Name)
	uplink, err := setupNetwork(c)
	if err != nil {
		return err
	}
	if err := applyRules(c.Rules); err != nil {
		return err
	}
	s := newSupervisor("/", c.Components, uplink)
	go s.run(context.Background())
	return http.Serve(control, controlHandler(s, uplink))
}

func applyRules(rules string) error {
	if rules == "" {
		return nil
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// controlHandler serves what Client asks.
func controlHandler(s *supervisor, uplink *uplink) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /components", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.status())
	})
	handle := func(pattern string, do func(*http.Request, *unit, syscall.Signal) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			u := s.find(r.PathValue("name"))
			if u == nil {
				http.Error(w, "no such component", http.StatusNotFound)
				return
			}
			signal := syscall.SIGTERM
			if n, err := strconv.Atoi(r.FormValue("signal")); err == nil {
				signal = syscall.Signal(n)
			}
			if err := do(r, u, signal); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	handle("POST /components/{name}/start", func(_ *http.Request, u *unit, _ syscall.Signal) error {
		u.setWanted(true)
		return nil
	})
	handle("POST /components/{name}/stop", func(r *http.Request, u *unit, signal syscall.Signal) error {
		return u.stop(r.Context(), signal)
	})
	handle("POST /components/{name}/kill", func(r *http.Request, u *unit, signal syscall.Signal) error {
		if signal == syscall.SIGKILL {
			return u.crash(r.Context())
		}
		return u.kill(signal)
	})
	handle("GET /components/{name}/ready", func(r *http.Request, u *unit, _ syscall.Signal) error {
		return u.wait(r.Context(), Ready)
	})
	mux.HandleFunc("PUT /routes", func(w http.ResponseWriter, r *http.Request) {
		if err := setRoutes(r, uplink); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

func setRoutes(r *http.Request, uplink *uplink) error {
	var routes []Route
	if err := json.NewDecoder(r.Body).Decode(&routes); err != nil {
		return err
	}
	if uplink == nil {
		return errors.New("the machine has no uplink")
	}
	return uplink.setRoutes(routes)
}
