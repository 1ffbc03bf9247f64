//! The features of the SDK that the cart does not use, as in the Go guest "rest".

use hostd::{json, reject, serve, Context, Entity, Missed, Rejection, Schedule, Source, View, SECOND};

json! { #[derive(Clone)] struct State { items: i64, last: String } }
json! { struct PlacedV1 { item: String } }
json! { struct Placed { count: i64, item: String } }
json! {
    /// The information that a command or a query has.
    struct Call {
        command: String,
        due: i64,
        id: String,
        now: i64,
        principal: String,
        random: String,
        sequence: u64,
        setting: String,
        source: String,
        typ as "type": String,
    }
}
json! { struct Number { n: i64 } }
json! { struct Note { text: String } }
json! { struct DraftV1 { text: String } }
json! { struct DraftV2 { count: i64, text: String } }
json! { #[derive(Clone)] struct Draft { count: i64, first: String } }

fn view(v: &View) -> Call {
    let principal = match v.principal() {
        None => "nobody".to_string(),
        Some(p) => format!("{} {} {}", p.kind, p.name, p.groups.join(",")),
    };
    let limit = v.setting("limit");
    let setting = format!("{} {} {}", limit.unwrap_or_default(), limit.is_some(), v.setting("lim").is_some());
    let (id, typ) = (v.entity_id().to_string(), v.entity_type().to_string());
    Call { id, now: v.now(), sequence: v.sequence(), setting, typ, principal, ..Call::default() }
}

fn tell(c: &mut Context<State>, _: ()) -> Result<Call, Rejection> {
    let source = match c.source() {
        Source::Client => "client".to_string(),
        Source::Timer => "timer".to_string(),
        Source::Entity { entity_type, id } => format!("{} {}", entity_type, id),
    };
    let random = format!("{} {}", c.random(), c.random());
    Ok(Call { command: c.command_id().to_string(), due: c.due(), random, source, ..view(c) })
}

fn rest() -> Entity<State> {
    Entity::new("rest")
        .snapshot_every(7)
        .passivate_after(90 * SECOND)
        .retain_events(5)
        .retain_snapshots(3)
        .always_on()
        .record_principal()
        .shard_key("rests", "-")
        .accepts_from(&["other", "rest-*"])
        .upcast("placed", 1, |old: PlacedV1| Placed { count: 1, item: old.item })
        .event("placed", |s: &mut State, e: Placed| {
            s.items += e.count;
            s.last = e.item;
        })
        .command("place", |c, cmd: Placed| {
            let item = format!("{}!", cmd.item);
            c.emit_tagged(&cmd, &["a", "b"]);
            c.emit(&Placed { count: 1, item });
            Ok(c.state().clone())
        })
        .rejects("place", &["full", "late"])
        .command("tell", tell)
        .rejects("tell", &[])
        .command("ask", |c, _: ()| {
            c.send_with_answer("other", "id", "do", "done", "refused", &Number { n: i64::MIN });
            Ok(())
        })
        .command("plan", |c, _: ()| {
            c.schedule("a", Schedule::Every(90 * SECOND), Missed::All, "tell", &());
            c.schedule("b", Schedule::Cron("0 3 * * mon-fri", "Europe/Berlin"), Missed::Skip, "place", &Number { n: 1 });
            Ok(())
        })
        .command("leave", |c, _: ()| {
            c.passivate();
            Ok(())
        })
        .command("end", |c, _: ()| {
            c.delete();
            Ok(())
        })
        .query("look", |v: &View, s, q: Number| if q.n != 0 { Err(reject("no", s.last.clone())) } else { Ok(view(v)) })
}

fn notes() -> Entity<Note> {
    Entity::<Note>::durable("note").singleton().retain_events(0).unchecked().sends(&[]).command("set", |c, cmd: Note| {
        let long = cmd.text.len() > 10;
        c.state_mut().text = cmd.text;
        if long {
            return Err(reject("too_long", ""));
        }
        Ok(())
    })
}

fn drafts() -> Entity<Draft> {
    Entity::<Draft>::durable("draft")
        .migrate_state(2, |old: DraftV2| Draft { count: 10 * old.count, first: format!("{}!", old.text) })
        .migrate_state(1, |old: DraftV1| DraftV2 { count: old.text.len() as i64, text: old.text })
        .command("write", |c, cmd: DraftV1| {
            let long = cmd.text.len() > 10;
            c.state_mut().first = cmd.text;
            if long {
                return Err(reject("too_long", ""));
            }
            Ok(c.state().clone())
        })
}

serve!("rest-rust", "1.0.0", rest(), notes(), drafts());
