// SPDX-License-Identifier: Apache-2.0

package target

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"sync"

	"coelan.io/coelan/internal/watcher/coe"
	"coelan.io/coelan/internal/watcher/mirror"
)

// Printer writes each edit as a line of JSON. NewPrinter makes it.
type Printer struct {
	mu      sync.Mutex
	out     *json.Encoder
	printed map[*coe.List]map[string]coe.Remote
}

// line is an edit: the method of RESTCONF, the entry's path, and the entry.
type line struct {
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Entry  coe.Entry `json:"entry,omitempty"`
}

// NewPrinter is a Printer that has printed nothing.
func NewPrinter(out io.Writer) *Printer {
	p := &Printer{out: json.NewEncoder(out), printed: map[*coe.List]map[string]coe.Remote{}}
	for _, list := range coe.Lists {
		p.printed[list] = map[string]coe.Remote{}
	}
	return p
}

// Read implements mirror.Target: what was printed is there.
func (p *Printer) Read(_ context.Context, list *coe.List) (map[string]coe.Remote, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.printed[list]), nil
}

// Put implements mirror.Target.
func (p *Printer) Put(_ context.Context, ref mirror.Ref, e coe.Entry) error {
	text, err := ref.List.Text(e)
	if err != nil {
		return &mirror.RefusedError{Err: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(line{"PUT", path(ref), e}); err != nil {
		return err
	}
	p.printed[ref.List][ref.Key] = coe.Remote{Text: text}
	return nil
}

// Delete implements mirror.Target.
func (p *Printer) Delete(_ context.Context, ref mirror.Ref) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.printed[ref.List][ref.Key]; !ok {
		return nil
	}
	if err := p.out.Encode(line{Method: "DELETE", Path: path(ref)}); err != nil {
		return err
	}
	delete(p.printed[ref.List], ref.Key)
	return nil
}

func path(ref mirror.Ref) string { return "/" + ref.List.Module + ":" + ref.String() }
