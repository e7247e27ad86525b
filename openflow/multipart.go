// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// MultipartRequest asks for statistics or descriptions; the answer comes as MultipartReply
// messages with the same transaction id, of which all but the last have More.
type MultipartRequest struct {
	// Body is one of DescRequest, FlowDescRequest, TableStatsRequest, PortStatsRequest,
	// GroupStatsRequest, GroupDescRequest, MeterStatsRequest, MeterConfigRequest,
	// PortDescRequest, FlowMonitorRequest.
	Body MultipartBody
	More bool
}

// MultipartReply is an answer or a part of one. The parts of a list are lists of their own.
type MultipartReply struct {
	// Body is one of *Desc, FlowDescs, TableStats, PortStats, GroupStats, GroupDescs,
	// MeterStats, MeterConfigs, PortDescs, FlowUpdates.
	Body MultipartBody
	More bool // further replies with the same transaction id follow
}

// MultipartBody is the content of a multipart message.
type MultipartBody interface {
	multipartType() uint16
	appendBody(b []byte) []byte
}

// Types of multipart messages, OpenFlow 1.5.1 section 7.3.5.
const (
	mpDesc        = 0
	mpFlowDesc    = 1
	mpTable       = 3
	mpPortStats   = 4
	mpGroup       = 6
	mpGroupDesc   = 7
	mpMeter       = 9
	mpMeterConfig = 10
	mpPortDesc    = 13
	mpFlowMonitor = 16
)

// mpMore is the flag of messages that others follow.
const mpMore = 1

func (*MultipartRequest) msgType() uint8               { return typeMultipartRequest }
func (m *MultipartRequest) appendBody(b []byte) []byte { return appendMultipart(b, m.Body, m.More) }
func (*MultipartReply) msgType() uint8                 { return typeMultipartReply }
func (m *MultipartReply) appendBody(b []byte) []byte   { return appendMultipart(b, m.Body, m.More) }

func appendMultipart(b []byte, body MultipartBody, more bool) []byte {
	b = append(be.AppendUint16(b, body.multipartType()), 0, 0, 0, 0, 0, 0)
	if more {
		b[len(b)-5] = mpMore
	}
	return body.appendBody(b)
}

func decodeMultipartRequest(r *reader) Message {
	m := &MultipartRequest{}
	typ := r.uint16()
	m.More = r.uint16()&mpMore != 0
	r.skip(4)
	m.Body = r.multipartRequest(typ)
	return m
}

func (r *reader) multipartRequest(typ uint16) MultipartBody {
	switch typ {
	case mpDesc:
		return &DescRequest{}
	case mpFlowDesc:
		return decodeFlowDescRequest(r)
	case mpTable:
		return &TableStatsRequest{}
	case mpPortStats:
		return &PortStatsRequest{r.uint32()}
	case mpGroup:
		return &GroupStatsRequest{r.uint32()}
	case mpGroupDesc:
		return &GroupDescRequest{r.uint32()}
	case mpMeter:
		return &MeterStatsRequest{r.uint32()}
	case mpMeterConfig:
		return &MeterConfigRequest{r.uint32()}
	case mpPortDesc:
		return &PortDescRequest{r.uint32()}
	case mpFlowMonitor:
		return decodeFlowMonitorRequest(r)
	}
	return &UnknownMultipart{typ, r.rest()}
}

func decodeMultipartReply(r *reader) Message {
	m := &MultipartReply{}
	typ := r.uint16()
	m.More = r.uint16()&mpMore != 0
	r.skip(4)
	m.Body = r.multipartReply(typ)
	return m
}

func (r *reader) multipartReply(typ uint16) MultipartBody {
	switch typ {
	case mpDesc:
		return decodeDesc(r)
	case mpFlowDesc:
		return FlowDescs(entries(r, (*reader).flowDesc))
	case mpTable:
		return TableStats(entries(r, (*reader).tableStat))
	case mpPortStats:
		return PortStats(entries(r, (*reader).portStat))
	case mpGroup:
		return GroupStats(entries(r, (*reader).groupStat))
	case mpGroupDesc:
		return GroupDescs(entries(r, (*reader).groupDesc))
	case mpMeter:
		return MeterStats(entries(r, (*reader).meterStat))
	case mpMeterConfig:
		return MeterConfigs(entries(r, (*reader).meterConfig))
	case mpPortDesc:
		return PortDescs(entries(r, (*reader).port))
	case mpFlowMonitor:
		return FlowUpdates(entries(r, (*reader).flowUpdate))
	}
	return &UnknownMultipart{typ, r.rest()}
}

// entries reads entries up to the end of r.
func entries[T any](r *reader, read func(*reader) T) (list []T) {
	for r.left() > 0 {
		e := read(r)
		if r.err == nil {
			list = append(list, e)
		}
	}
	return list
}

// entry returns a reader of an entry of n bytes, of which head have been read. What is wrong
// in it is put into r by end.
func (r *reader) entry(what string, n, head int) reader {
	if n < head && r.err == nil {
		r.fail("%s of %d bytes", what, n)
	}
	return r.sub(n - head)
}

func (r *reader) end(what string, entry *reader) {
	if entry.err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, entry.err)
	}
}

// UnknownMultipart is a multipart body that this package does not know.
type UnknownMultipart struct {
	Type uint16
	Data []byte
}

func (m *UnknownMultipart) multipartType() uint16      { return m.Type }
func (m *UnknownMultipart) appendBody(b []byte) []byte { return append(b, m.Data...) }
