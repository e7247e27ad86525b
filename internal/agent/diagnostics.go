// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"coelan.io/coelan/internal/agent/bind"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/ovsdb"
)

// diagnostics are the answers on the agent's socket.
func (a *Agent) diagnostics() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, a.status()) })
	mux.HandleFunc("GET /v1/ports", func(w http.ResponseWriter, r *http.Request) { reply(w)(a.ports(r.Context())) })
	mux.HandleFunc("GET /v1/networks", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, a.networks()) })
	mux.HandleFunc("GET /v1/routers", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, a.routers()) })
	mux.HandleFunc("GET /v1/services", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, a.serviceList()) })
	mux.HandleFunc("GET /v1/policystats", func(w http.ResponseWriter, r *http.Request) { reply(w)(a.policyStats(r.Context())) })
	mux.HandleFunc("GET /v1/check", func(w http.ResponseWriter, r *http.Request) { reply(w)(a.check(r.Context())) })
	mux.HandleFunc("POST /v1/trace", a.handleTrace)
	return mux
}

// maxRequest bounds the body of a question.
const maxRequest = 1 << 16

func (a *Agent) handleTrace(w http.ResponseWriter, r *http.Request) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	var req TraceRequest
	if err := d.Decode(&req); err != nil {
		http.Error(w, "packet: "+err.Error(), http.StatusBadRequest)
		return
	}
	reply(w)(a.trace(r.Context(), req))
}

// PortInfo is an element of the answer to GET /v1/ports.
type PortInfo struct {
	attachment.Attachment
	// Ready says that packets can pass; Actual and Error are what Open vSwitch says of the port.
	Ready  bool   `json:"ready"`
	Actual int    `json:"actualOFPort"`
	Error  string `json:"error,omitempty"`
}

func (a *Agent) ports(ctx context.Context) ([]PortInfo, error) {
	have, err := a.db.Ports(ctx)
	if err != nil {
		return nil, err
	}
	guests, err := a.db.Interfaces(ctx, a.cfg.Bridge, bind.IfaceID)
	if err != nil {
		return nil, err
	}
	states := make(map[string]ovsdb.PortState, len(have))
	for _, p := range append(have, guests...) {
		states[p.Name] = p
	}
	infos := []PortInfo{}
	for _, at := range a.store.List() {
		st, ok := states[at.HostInterface]
		info := PortInfo{Attachment: at, Ready: st.Ready() && st.Actual == int(at.OFPort), Actual: st.Actual, Error: st.Error}
		if !ok {
			info.Error = "not in the database"
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(x, y PortInfo) int { return cmp.Compare(x.PodRef(), y.PodRef()) })
	return infos, nil
}

// reply returns what writes an answer or its error.
func reply(w http.ResponseWriter) func(v any, err error) {
	return func(v any, err error) {
		switch {
		case errors.As(err, new(badRequest)):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			localapi.Answer(w, v)
		}
	}
}
